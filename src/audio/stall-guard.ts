import { pipeline, type Readable, Transform } from 'node:stream';

/**
 * The same bytes, but the stream fails once its source has sent nothing for so long. Only the source is timed: while the
 * reader is the one that keeps the other waiting, no time passes.
 */
export function guardAgainstStall(source: Readable, stallMs: number): Readable {
  const guarded = new Transform({
    transform(chunk, _encoding, done) {
      timer.refresh();
      done(null, chunk);
    },
  });
  const timer = setTimeout(() => {
    if (guarded.writableNeedDrain) timer.refresh();
    else source.destroy(new Error('The source of the stream has stalled.'));
  }, stallMs);
  guarded.on('drain', () => timer.refresh());
  // An error reaches the reader through the guarded stream.
  pipeline(source, guarded, () => clearTimeout(timer));
  return guarded;
}
