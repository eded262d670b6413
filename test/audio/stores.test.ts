import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { buffer } from 'node:stream/consumers';
import { test } from 'tap';
import { type AudioStore, type ByteRange, StoreError } from '../../src/audio/audio-store.ts';
import { type Backend, fileBackend, s3Backend } from './backends.ts';

const MIME_TYPE = 'audio/mpeg';

const backends: Record<string, Backend> = { file: fileBackend(), s3: s3Backend() };

for (const [name, backend] of Object.entries(backends)) {
  test(`${name} store`, async (t) => {
    let store: AudioStore;
    let count = 0;
    const newKey = () => `jobs/key-${++count}`;

    const read = async (key: string, range?: ByteRange): Promise<Buffer> => {
      const stored = await store.open(key, range);
      return buffer((stored ?? assert.fail(`${key} is absent`)).stream);
    };

    t.before(async () => {
      await backend.start();
      store = backend.open();
    });
    t.teardown(async () => {
      await store?.close();
      await backend.stop();
    });

    t.test('before the first put an object is absent, and deleting it is no error', async () => {
      assert.equal(await store.open('jobs/never'), undefined);
      assert.equal(await store.open('jobs/never', { start: 0, end: 0 }), undefined);
      await store.delete('jobs/never');
    });

    t.test('what was put comes back, with its size', async () => {
      const key = newKey();
      const audio = randomBytes(5000);
      await store.put(key, audio, MIME_TYPE);
      const stored = await store.open(key);
      assert.equal(stored?.size, 5000);
      assert.deepEqual(await buffer(stored.stream), audio);
    });

    t.test('another handle sees what was put', async () => {
      const key = newKey();
      await store.put(key, Buffer.from('shared'), MIME_TYPE);
      const other = backend.open();
      const stored = await other.open(key);
      assert.equal((await buffer((stored ?? assert.fail()).stream)).toString(), 'shared');
      await other.close();
    });

    t.test('a repeated put replaces the object, also by a shorter one', async () => {
      const key = newKey();
      await store.put(key, randomBytes(5000), MIME_TYPE);
      await store.put(key, Buffer.from('short'), MIME_TYPE);
      assert.equal((await read(key)).toString(), 'short');
    });

    t.test('an empty object is an object', async () => {
      const key = newKey();
      await store.put(key, Buffer.alloc(0), MIME_TYPE);
      const stored = await store.open(key);
      assert.equal(stored?.size, 0);
      assert.equal((await buffer(stored.stream)).length, 0);
      await assert.rejects(store.open(key, { start: 0, end: 0 }), RangeError);
    });

    const ranges: { range: ByteRange; expected: string }[] = [
      { range: { start: 0, end: 0 }, expected: '0' },
      { range: { start: 2, end: 4 }, expected: '234' },
      { range: { start: 9, end: 9 }, expected: '9' },
      { range: { start: 0, end: 9 }, expected: '0123456789' },
      { range: { start: 7, end: 1_000_000 }, expected: '789' },
    ];
    for (const { range, expected } of ranges) {
      t.test(
        `bytes ${range.start} to ${range.end} of ten are ${expected}, and the size is the whole object's`,
        async () => {
          const key = newKey();
          await store.put(key, Buffer.from('0123456789'), MIME_TYPE);
          const stored = await store.open(key, range);
          assert.equal(stored?.size, 10);
          assert.equal((await buffer(stored.stream)).toString(), expected);
        },
      );
    }

    for (const range of [
      { start: 10, end: 10 },
      { start: 4, end: 3 },
      { start: -1, end: 3 },
      { start: 0.5, end: 3 },
      { start: 0, end: Number.POSITIVE_INFINITY },
      { start: Number.NaN, end: 3 },
    ]) {
      t.test(`bytes ${range.start} to ${range.end} of ten are refused`, async () => {
        const key = newKey();
        await store.put(key, Buffer.from('0123456789'), MIME_TYPE);
        await assert.rejects(store.open(key, range), RangeError);
      });
    }

    t.test('a deleted object is absent, and deleting it again is no error', async () => {
      const key = newKey();
      await store.put(key, Buffer.from('gone'), MIME_TYPE);
      await store.delete(key);
      assert.equal(await store.open(key), undefined);
      await store.delete(key);
    });

    t.test('a stream that is open goes on when its object is deleted or replaced', async () => {
      const key = newKey();
      const audio = randomBytes(1_000_000);
      await store.put(key, audio, MIME_TYPE);
      const first = (await store.open(key)) ?? assert.fail();
      await store.put(key, Buffer.from('new'), MIME_TYPE);
      await store.delete(key);
      assert.deepEqual(await buffer(first.stream), audio);
    });

    t.test('of ten puts at once under one key, one wins whole', async () => {
      const key = newKey();
      const audios = Array.from({ length: 10 }, (_, index) => Buffer.alloc(100_000 + index, index));
      await Promise.all(audios.map((audio) => store.put(key, audio, MIME_TYPE)));
      const winner = await read(key);
      assert.ok(audios.some((audio) => audio.equals(winner)));
    });

    t.test('a big object comes back unchanged', async () => {
      const key = newKey();
      const audio = randomBytes(8 * 1024 * 1024);
      await store.put(key, audio, MIME_TYPE);
      assert.equal(sha256(await read(key)), sha256(audio));
      assert.equal(sha256(await read(key, { start: 1, end: audio.length - 2 })), sha256(audio.subarray(1, -1)));
    });

    t.test('who reads during a put gets the object before or after it, never a part', async () => {
      const key = newKey();
      const versions = Array.from({ length: 6 }, (_, index) => Buffer.alloc(1_000_000 + index * 300_000, index));
      await store.put(key, versions[0] as Buffer, MIME_TYPE);
      let putting = true;
      const reader = async () => {
        let reads = 0;
        while (putting) {
          const seen = await read(key);
          assert.ok(
            versions.some((version) => version.equals(seen)),
            `${seen.length} bytes of no version`,
          );
          reads += 1;
        }
        return reads;
      };
      const readers = Promise.all([reader(), reader()]);
      try {
        for (const version of versions) await store.put(key, version, MIME_TYPE);
      } finally {
        putting = false;
      }
      assert.ok((await readers).every((reads) => reads > 0));
    });

    t.test('keys that differ in case, or begin with one another, name different objects', async () => {
      const keys = ['Case', 'case', 'CASE', 'case/case', 'case_case', 'case-case'];
      for (const key of keys) await store.put(key, Buffer.from(key), MIME_TYPE);
      for (const key of keys) assert.equal((await read(key)).toString(), key);
    });

    t.test('a key of 200 characters is the longest', async () => {
      await store.put('k'.repeat(200), Buffer.from('long'), MIME_TYPE);
      assert.equal((await read('k'.repeat(200))).toString(), 'long');
      await assert.rejects(store.put('k'.repeat(201), Buffer.from('long'), MIME_TYPE), TypeError);
    });

    for (const key of [
      '',
      '..',
      '../a',
      'a/../b',
      '/a',
      'a/',
      'a//b',
      'a.b',
      'a\\b',
      'a\0',
      'a\n',
      'ä',
      'a b',
      '%2e',
    ]) {
      t.test(`the key ${JSON.stringify(key)} is refused`, async () => {
        await assert.rejects(store.put(key, Buffer.from('x'), MIME_TYPE), TypeError);
        await assert.rejects(store.open(key), TypeError);
        await assert.rejects(store.delete(key), TypeError);
      });
    }

    t.test('a store out of reach says so, without saying where it is', async () => {
      const unreachable = await backend.openUnreachable();
      const isUnavailable = (error: unknown) => {
        assert.ok(error instanceof StoreError);
        assert.equal(error.reason, 'unavailable');
        assert.equal(error.message, 'The audio store is not available.');
        return true;
      };
      await assert.rejects(unreachable.put('a', Buffer.from('x'), MIME_TYPE), isUnavailable);
      await assert.rejects(unreachable.open('a'), isUnavailable);
      await assert.rejects(unreachable.delete('a'), isUnavailable);
      await unreachable.close();
    });
  });
}

function sha256(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex');
}
