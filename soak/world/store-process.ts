/**
 * An S3-compatible server as a program of its own, on PORT, with the bucket BUCKET. It keeps objects in memory: it is
 * frozen and its link is broken, but it is never killed.
 */
import { startS3Server } from '../../test/support/s3-server.ts';

const { PORT, BUCKET = '' } = process.env;

await startS3Server(BUCKET, Number(PORT));
console.log('stores');
