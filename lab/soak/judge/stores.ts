import type { Rule } from './rule.ts';
import { MOMENT_SECONDS } from './speech.ts';

const missing = (told: string, key: string, of: string, size: string): string => `
  select ${told} as told, ${key} as detail from ${of}
    and not exists (select from audio where audio.key = ${key} and audio.size ${size})`;

/** The minute of the payment's UUIDv7, whose first 48 bits are milliseconds. */
const MINUTE = `('x' || left(replace(payment.id::text, '-', ''), 12))::bit(48)::bigint / 60000`;

/** Stored audio, and responses that are wrong by themselves. */
export const OTHER_RULES: readonly Rule[] = [
  {
    kind: 'paid, not served',
    words: 'the audio of a settled payment is not in the store',
    sql: missing(
      '(select min(told.id) from told where told.payer = payment.payer and told.nonce = payment.nonce)',
      `'x402/' || ${MINUTE} || '/' || payment.id || '-' || payment.fence`,
      `x402_payment payment where state = 'settled' and purpose = 'speech'`,
      '> 0',
    ),
  },
  {
    kind: 'paid, not served',
    words: 'the audio of a completed job is not in the store',
    sql: missing(
      '(select min(told.id) from told where told.job_id = job.id::text)',
      `'jobs/' || job.id || '/' || job.fence`,
      `job where state = 'completed' and store_audio and not audio_deleted`,
      '= job.size_bytes',
    ),
  },
  {
    kind: 'other',
    words: 'an answer breaks a promise by itself',
    // A database that died may have lost a nonce with its hold.
    sql: `select id as told, wrong as detail from told
          where wrong is not null and not (flow = 'prepaid' and exists (
            select from death where gateway = 'postgres'
              and at between death.begun_at - ${MOMENT_SECONDS} and death.ended_at + ${MOMENT_SECONDS}))`,
  },
  {
    kind: 'other',
    words: 'the end could not be learnt',
    sql: `select id as told, null as detail from told where ended = 'open'`,
  },
];
