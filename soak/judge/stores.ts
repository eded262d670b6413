import type { Rule } from './rule.ts';

const missing = (told: string, key: string, of: string, size: string): string => `
  select ${told} as told, ${key} as detail from ${of}
    and not exists (select from audio where audio.key = ${key} and audio.size ${size})`;

/** Audio that the books have, feedback, and what callers saw that is wrong by itself. */
export const OTHER_RULES: readonly Rule[] = [
  {
    kind: 'paid, not served',
    words: 'the audio of a settled payment is not in the store',
    sql: missing(
      '(select min(told.id) from told where told.payer = payment.payer and told.nonce = payment.nonce)',
      `'x402/' || payment.id || '-' || payment.fence`,
      `x402_payment payment where state = 'settled' and purpose = 'speech' and audio_deleted_at is null`,
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
    kind: 'paid, not served',
    words: 'the audio of an answer that did not arrive is not in the store',
    sql: missing(
      '(select min(told) from matched where charge = lost_answer.hold_id)',
      `'prepaid/' || lost_answer.id`,
      'lost_answer where stored_at is not null and expires_at > now()',
      '= lost_answer.size_bytes',
    ),
  },
  {
    kind: 'other',
    words: 'feedback is not stored exactly as often as it was told',
    sql: `select told.id as told, count(feedback.id) || ' rows' as detail
          from told left join feedback on lower(feedback.wallet) = told.payer where flow = 'feedback' and ended <> 'open'
          group by told.id, ended having count(feedback.id) <> case when ended = 'served' then 1 else 0 end`,
  },
  {
    kind: 'other',
    words: 'an answer breaks a promise by itself',
    sql: 'select id as told, wrong as detail from told where wrong is not null',
  },
  {
    kind: 'other',
    words: 'the end could not be learnt',
    sql: `select id as told, null as detail from told where ended = 'open'`,
  },
];
