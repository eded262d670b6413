/**
 * An S3-compatible server as a process on PORT, with the bucket BUCKET. It keeps objects in memory, so faults freeze it
 * or break its link but never kill it.
 */
import { startS3Server } from '../../../test/support/s3-server.ts';

const { PORT, BUCKET = '' } = process.env;

await startS3Server(BUCKET, Number(PORT));
console.log('stores');
