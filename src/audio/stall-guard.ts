import { pipeline, type Readable, Transform } from 'node:stream';

/**
 * The same bytes, but the stream fails once its source has sent nothing for so long. Only the source is timed: while the
 * reader is the one that keeps the other waiting, no time passes.
 */
export function guardAgainstStall(source: Readable, stallMs: number): Readable {
  let timer: NodeJS.Timeout | undefined;
  const startTimer = () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      if (guarded.writableNeedDrain) startTimer();
      else source.destroy(new Error('The source of the stream has stalled.'));
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
  // An error reaches the reader through the guarded stream.
  pipeline(source, guarded, () => clearTimeout(timer));
  return guarded;
}
