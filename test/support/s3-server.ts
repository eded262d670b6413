import type { AddressInfo } from 'node:net';
import { CreateBucketCommand, S3Client } from '@aws-sdk/client-s3';
import { buildApp } from 'fauxqs';

export type S3Server = Awaited<ReturnType<typeof startS3Server>>;

/** Credentials for the SDK, which finds them in the environment; any will do for the server. */
export const S3_CREDENTIALS = { AWS_ACCESS_KEY_ID: 'test', AWS_SECRET_ACCESS_KEY: 'test' };

/**
 * An S3-compatible server on the loopback interface, with one bucket. It takes objects of up to 11 MiB.
 * @param wanted its port; by default any that is free
 */
export async function startS3Server(bucket: string, wanted = 0) {
  const app = buildApp({ logger: false });
  await app.listen({ host: '127.0.0.1', port: wanted });
  const { port } = app.server.address() as AddressInfo;
  const endpoint = `http://127.0.0.1:${port}`;
  /** For looking at the bucket past the code under test. */
  const client = new S3Client({
    endpoint,
    forcePathStyle: true,
    region: 'us-east-1',
    credentials: { accessKeyId: 'test', secretAccessKey: 'test' },
  });
  await client.send(new CreateBucketCommand({ Bucket: bucket }));
  return {
    endpoint,
    port,
    client,
    stop: async () => {
      client.destroy();
      await app.close();
    },
  };
}
