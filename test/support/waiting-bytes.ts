import type { Gateway } from './gateway.ts';

/** Bytes of audio that wait for their callers. */
export const waitingBytes = async ({ app }: Gateway) =>
  Number(/^speechgate_waiting_audio_bytes (\d+)/m.exec((await app.admin.inject('/metrics')).body)?.[1]);
