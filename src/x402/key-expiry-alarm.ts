import type { SigningKey } from './signing-keys.ts';

const DAY_MS = 86_400_000;
/** Key files are rotated by people, and given to each replica. */
const WARN_MS = 30 * DAY_MS;
const ALARM_MS = 7 * DAY_MS;

/** Where the end of a key is told of. */
interface Alarm {
  warn(line: object, message: string): void;
  error(line: object, message: string): void;
}

/** Tells the log, now and once a day, when the key that signs metadata ends within 30 days; returns how to stop. */
export function watchKeyExpiry(
  { keyId, validUntil }: Pick<SigningKey, 'keyId' | 'validUntil'>,
  log: Alarm,
): () => void {
  if (!validUntil) return () => {};
  const look = () => {
    const leftMs = validUntil.getTime() - Date.now();
    if (leftMs > WARN_MS) return;
    log[leftMs > ALARM_MS ? 'warn' : 'error'](
      { keyId, validUntil: validUntil.toISOString() },
      'the key of the signed metadata ends; from then on the metadata answers 503. Run npm run keys, and restart',
    );
  };
  look();
  const timer = setInterval(look, DAY_MS).unref();
  return () => clearInterval(timer);
}
