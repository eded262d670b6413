import { test } from 'tap';
import { AudioMemory } from '../../src/speech/synthesis-permits.ts';

test('R55: collected audio refuses new work and disconnects no stream reader', async (t) => {
  const memory = new AudioMemory(100);
  let isCut = false;
  const stream = memory.share(() => {
    isCut = true;
  });
  const collected = memory.share();
  collected.add(1_000);
  stream.add(10);
  t.strictSame([memory.isFull, isCut], [true, false]);
  stream.add(200);
  t.equal(isCut, true, 'twice the bound waits for who does not read');
  collected.release();
  stream.release();
  t.equal(memory.bytes, 0);
});
