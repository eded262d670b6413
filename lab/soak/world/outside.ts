import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { paginateListObjectsV2, S3Client } from '@aws-sdk/client-s3';
import type { Hex } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { rotateKeys } from '../../../src/config/signing-keys.ts';
import { fund } from '../../../src/sandbox/chain/fund.ts';
import { freePort } from '../../../src/sandbox/free-port.ts';
import { type Owner, programCommand } from '../../../test/support/child.ts';
import { S3_CREDENTIALS } from '../../../test/support/s3-server.ts';
import { type HttpLink, startHttpLink } from '../links/http-link.ts';
import { ChainPart } from './chain-part.ts';
import { ProcessPart } from './process-part.ts';
import { processorAt } from './processor.ts';
import type { OutsideName, Service } from './world.ts';

const BUCKET = 'soak';
const GAS_WEI = 10n ** 24n;
const START_MS = 120_000;
/** Other tests cover the limits. */
const LIMITLESS = {
  ...{ RATE_LIMIT_MAX: '1000000', TOP_UP_RATE_LIMIT_MAX: '1000000', EDGE_RATE_LIMIT_MAX: '100000000' },
  FEEDBACK_MAX_PER_HOUR: '1000000',
};
const SECRETS = {
  ...{ QUOTE_SECRET: 'q'.repeat(32), JOB_SIGNING_SECRET: 'j'.repeat(32), FEEDBACK_SECRET: 'f'.repeat(32) },
};

type ProcessName = 'facilitator' | 'checkout' | 'store' | 'upstream';

/** External services, each with the link through which the service calls it. */
export interface Outside {
  readonly parts: Readonly<Record<ProcessName, ProcessPart> & { chain: ChainPart }>;
  readonly links: Readonly<Record<OutsideName, HttpLink>>;
  /** What callers and the judge use of them. */
  readonly service: Pick<Service, 'payTo' | 'chain' | 'processor' | 'audioObjects'>;
  /** Settings of the service, except of its database, that use the links, or with `isDirect` the services themselves. */
  settings(isDirect: boolean): Record<string, string>;
}

export async function openOutside(owner: Owner, folder: string): Promise<Outside> {
  const chain = await ChainPart.open(owner, folder);
  const [facilitatorKey, secretKey] = [generatePrivateKey(), 'sk_test_soak'];
  await fund(chain.client, privateKeyToAccount(facilitatorKey).address, { ether: GAS_WEI });

  const origins = new Map<string, string>();
  const open = async (name: ProcessName, says: RegExp, env: Readonly<Record<string, string>>): Promise<ProcessPart> => {
    const port = String(await freePort());
    origins.set(name, `http://127.0.0.1:${port}`);
    const command = programCommand(`lab/soak/world/${name}-process.ts`);
    const part = new ProcessPart({
      name,
      owner,
      command,
      env: { PORT: port, ...env },
      ready: ({ printed }) => printed(says, START_MS),
    });
    await part.start();
    return part;
  };
  const keysFile = join(folder, 'signing-keys.json');
  await writeFile(keysFile, JSON.stringify(rotateKeys(undefined, new Date())), { mode: 0o600 });
  const operationsPort = String(await freePort());
  const [facilitator, checkout, store, upstream] = await Promise.all([
    open('facilitator', /settles/, { RPC_URL: chain.url, PRIVATE_KEY: facilitatorKey }),
    open('checkout', /sells/, {
      DATA_DIR: join(folder, 'checkout'),
      OPERATIONS_PORT: operationsPort,
      SECRET_KEY: secretKey,
    }),
    open('store', /stores/, { BUCKET }),
    open('upstream', /speaks/, {}),
  ]);

  const originOf = (name: OutsideName): string => (name === 'node' ? chain.url : (origins.get(name) as string));
  const link = (name: OutsideName) => startHttpLink(owner, originOf(name));
  const links = {
    upstream: await link('upstream'),
    facilitator: await link('facilitator'),
    node: await link('node'),
    checkout: await link('checkout'),
    store: await link('store'),
  };
  const s3 = new S3Client({
    endpoint: originOf('store'),
    forcePathStyle: true,
    region: 'us-east-1',
    credentials: { accessKeyId: 'test', secretAccessKey: 'test' },
  });
  owner.teardown(() => s3.destroy());
  const payTo = privateKeyToAccount(generatePrivateKey() as Hex).address;
  return {
    parts: { facilitator, checkout, store, upstream, chain },
    links,
    service: {
      ...{ payTo, chain: chain.client, audioObjects: () => listObjects(s3) },
      processor: processorAt(originOf('checkout'), `http://127.0.0.1:${operationsPort}`, secretKey),
    },
    settings: (isDirect) => {
      const at = (name: OutsideName) => (isDirect ? originOf(name) : links[name].origin);
      return {
        ...{ SPEECH_BASE_URL: `${at('upstream')}/v1`, X402_PAY_TO: payTo },
        ...{ X402_FACILITATOR_URL: at('facilitator'), X402_RPC_URL: at('node') },
        ...{ STRIPE_SECRET_KEY: secretKey, STRIPE_API_BASE: at('checkout'), CHECKOUT_ORIGIN: originOf('checkout') },
        ...{
          AUDIO_STORE: `s3://${BUCKET}/audio`,
          PREPAID_AUDIO_MIB_PER_MINUTE: '256',
          AWS_ENDPOINT_URL: at('store'),
          AWS_REGION: 'us-east-1',
        },
        ...{ ...S3_CREDENTIALS, ...LIMITLESS, ...SECRETS, LOG_LEVEL: 'warn' },
        ...{ DATA_DIR: join(folder, 'data'), SIGNING_KEYS_FILE: keysFile },
      };
    },
  };
}

async function listObjects(s3: S3Client): Promise<ReadonlyMap<string, number>> {
  const objects = new Map<string, number>();
  for await (const { Contents = [] } of paginateListObjectsV2({ client: s3 }, { Bucket: BUCKET })) {
    for (const { Key = '', Size = 0 } of Contents) objects.set(Key, Size);
  }
  return objects;
}
