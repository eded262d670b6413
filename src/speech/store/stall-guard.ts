import { pipeline, type Readable, Transform } from 'node:stream';
import { StoreError } from './audio-store.ts';

/** Fails with StoreError once its source sent nothing for `stallMs`. The time does not run while a slow reader blocks the source. */
export function guardAgainstStall(source: Readable, stallMs: number): Readable {
  let timer: NodeJS.Timeout | undefined;
  const startTimer = () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      if (guarded.writableNeedDrain) startTimer();
      else source.destroy(new StoreError('unavailable', new Error(`the audio store sent nothing for ${stallMs} ms`)));
    }, stallMs);
  };
  const guarded = new Transform({
    transform(chunk, _encoding, done) {
      startTimer();
      done(null, chunk);
    },
  });
  guarded.on('drain', startTimer);
  startTimer();
  pipeline(source, guarded, () => clearTimeout(timer));
  return guarded;
}
