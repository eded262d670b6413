import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { test } from 'tap';
import { v7 as uuidv7 } from 'uuid';
import { type AudioStore, type ByteRange, StoreError } from '../../../src/speech/store/audio-store.ts';
import { openAudioStore } from '../../../src/speech/store/open-store.ts';
import { S3_CREDENTIALS, type S3Server, startS3Server } from '../../support/s3-server.ts';

interface Backend {
  start(): Promise<void>;
  stop(): Promise<void>;
  /** A new handle to the one store. */
  open(): AudioStore;
  /** A store that can be neither reached nor written to. */
  openUnreachable(): Promise<AudioStore>;
}

function fileBackend(): Backend {
  let directory = '';
  return {
    start: async () => {
      directory = await mkdtemp(join(tmpdir(), 'speechgate-audio-'));
    },
    stop: () => rm(directory, { recursive: true, force: true }),
    open: () => openAudioStore(`file:${join(directory, 'not/yet/made')}`),
    openUnreachable: async () => {
      await writeFile(join(directory, 'file'), '');
      return openAudioStore(`file:${join(directory, 'file/below')}`);
    },
  };
}

function s3Backend(): Backend {
  let server: S3Server;
  const open = (endpoint: string) => {
    process.env.AWS_ENDPOINT_URL = endpoint;
    return openAudioStore('s3://voices/some/prefix');
  };
  return {
    start: async () => {
      server = await startS3Server('voices');
      Object.assign(process.env, S3_CREDENTIALS);
    },
    stop: async () => {
      for (const name of ['AWS_ENDPOINT_URL', ...Object.keys(S3_CREDENTIALS)]) delete process.env[name];
      await server.stop();
    },
    open: () => open(server.endpoint),
    openUnreachable: async () => {
      const stopped = await startS3Server('voices');
      await stopped.stop();
      return open(stopped.endpoint);
    },
  };
}

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

    t.test('an object is absent before its first put, and deleting it is not an error', async (t) => {
      t.equal(await store.open('jobs/never'), undefined);
      t.equal(await store.open('jobs/never', { start: 0, end: 0 }), undefined);
      await store.delete('jobs/never');
    });

    t.test('a repeated put replaces the object, even with a shorter one', async (t) => {
      const key = newKey();
      await store.put(key, randomBytes(5000), MIME_TYPE);
      await store.put(key, Buffer.from('short'), MIME_TYPE);
      t.equal((await read(key)).toString(), 'short');
    });

    t.test('a range of bytes comes with the whole size, and an impossible one is refused', async (t) => {
      const key = newKey();
      await store.put(key, Buffer.from('0123456789'), MIME_TYPE);
      for (const [start, end, expected] of [
        [0, 0, '0'],
        [2, 4, '234'],
        [0, 9, '0123456789'],
        [7, 1_000_000, '789'],
      ] as const) {
        const stored = (await store.open(key, { start, end })) ?? assert.fail();
        t.strictSame([stored.size, (await buffer(stored.stream)).toString()], [10, expected]);
      }
      for (const [start, end] of [
        [10, 10],
        [4, 3],
        [-1, 3],
        [0.5, 3],
        [0, Number.POSITIVE_INFINITY],
      ] as const) {
        await t.rejects(store.open(key, { start, end }), RangeError, `${start} to ${end}`);
      }
      await store.put(key, Buffer.alloc(0), MIME_TYPE);
      t.equal((await store.open(key))?.size, 0);
      await t.rejects(store.open(key, { start: 0, end: 0 }), RangeError);
    });

    t.test('a deleted object is absent, and deleting it again is not an error', async (t) => {
      const key = newKey();
      await store.put(key, Buffer.from('gone'), MIME_TYPE);
      await store.delete(key);
      t.equal(await store.open(key), undefined);
      await store.delete(key);
    });

    t.test('an open stream continues when its object is deleted or replaced', async (t) => {
      const key = newKey();
      const audio = randomBytes(1_000_000);
      await store.put(key, audio, MIME_TYPE);
      const first = (await store.open(key)) ?? assert.fail();
      await store.put(key, Buffer.from('new'), MIME_TYPE);
      await store.delete(key);
      t.strictSame(await buffer(first.stream), audio);
    });

    t.test('of ten concurrent puts with one key, one wins completely', async (t) => {
      const key = newKey();
      const audios = Array.from({ length: 10 }, (_, index) => Buffer.alloc(100_000 + index, index));
      await Promise.all(audios.map((audio) => store.put(key, audio, MIME_TYPE)));
      const winner = await read(key);
      t.ok(audios.some((audio) => audio.equals(winner)));
    });

    t.test('a large object is returned unchanged', async (t) => {
      const key = newKey();
      const audio = randomBytes(8 * 1024 * 1024);
      await store.put(key, audio, MIME_TYPE);
      t.equal(sha256(await read(key)), sha256(audio));
      t.equal(sha256(await read(key, { start: 1, end: audio.length - 2 })), sha256(audio.subarray(1, -1)));
    });

    t.test('a read during a put returns the old or the new object, never a part', async (t) => {
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
      t.ok((await readers).every((reads) => reads > 0));
    });

    t.test('keys that differ in case or share a prefix name different objects', async (t) => {
      const keys = ['Case', 'case', 'CASE', 'case/case', 'case_case', 'case-case'];
      for (const key of keys) await store.put(key, Buffer.from(key), MIME_TYPE);
      for (const key of keys) t.equal((await read(key)).toString(), key);
    });

    t.test('a key may have at most 200 characters', async (t) => {
      await store.put('k'.repeat(200), Buffer.from('long'), MIME_TYPE);
      t.equal((await read('k'.repeat(200))).toString(), 'long');
      await t.rejects(store.put('k'.repeat(201), Buffer.from('long'), MIME_TYPE), TypeError);
    });

    t.test('a key that may lead elsewhere is refused', async (t) => {
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
        await t.rejects(store.put(key, Buffer.from('x'), MIME_TYPE), TypeError);
        await t.rejects(store.open(key), TypeError);
        await t.rejects(store.delete(key), TypeError);
      }
      for (const key of ['', '..', 'key', `${uuidv7()}/x`, `${uuidv7()}-`, `${uuidv7()}-x`, uuidv7().toUpperCase()]) {
        await t.rejects(store.dated.x402.put(key, Buffer.from('x'), MIME_TYPE), TypeError);
        await t.rejects(store.dated.x402.open(key), TypeError);
      }
    });

    for (const kind of ['x402', 'prepaid'] as const) {
      t.test(`a ${kind} object is readable, also in parts, until its minute is deleted`, async (t) => {
        const dated = store.dated[kind];
        const minute = 29_000_000;
        const endOf = (minutes: number) => new Date((minute + minutes + 1) * 60_000);
        const put = async (minutes: number, text: string, suffix = '') => {
          const key = uuidv7({ msecs: endOf(minutes).getTime() - 1 }) + suffix;
          await dated.put(key, Buffer.from(text), MIME_TYPE);
          return key;
        };
        const readDated = async (key: string, range?: ByteRange) => {
          const other = backend.open();
          const stored = await other.dated[kind].open(key, range);
          const found = stored && { size: stored.size, text: (await buffer(stored.stream)).toString() };
          await other.close();
          return found;
        };
        t.strictSame(await dated.minutes(new Date()), [], 'nothing was ever put');
        t.equal(await dated.deleteMinute(minute), 0);
        const [first, second, third] = [
          await put(0, '0123456789'),
          await put(0, 'second', '-12'),
          await put(1, 'third'),
        ];
        t.strictSame(await readDated(first), { size: 10, text: '0123456789' });
        t.strictSame(await readDated(second), { size: 6, text: 'second' });
        for (const [range, text] of [
          [{ start: 2, end: 4 }, '234'],
          [{ start: 7, end: 1_000_000 }, '789'],
        ] as const) {
          t.strictSame(await readDated(first, range), { size: 10, text });
        }
        await t.rejects(dated.open(first, { start: 10, end: 10 }), RangeError);
        for (const absent of [uuidv7(), `${first}-1`, second.slice(0, -1), second.slice(0, 36)]) {
          t.equal(await readDated(absent), undefined, absent);
        }
        await dated.put(first, Buffer.from('again'), MIME_TYPE);
        t.strictSame(await readDated(first), { size: 5, text: 'again' });
        await store.put('jobs/beside', Buffer.from('kept'), MIME_TYPE);

        t.strictSame(await dated.minutes(new Date(endOf(0).getTime() - 1)), [], 'its minute is not over');
        t.strictSame(await dated.minutes(endOf(0)), [minute]);
        t.strictSame(await dated.minutes(new Date()), [minute, minute + 1]);
        t.ok((await dated.deleteMinute(minute)) >= 2);
        for (const key of [first, second]) t.equal(await readDated(key), undefined);
        t.strictSame(await readDated(third), { size: 5, text: 'third' });
        await dated.put(first, Buffer.from('late'), MIME_TYPE);
        t.strictSame(await readDated(first), { size: 4, text: 'late' }, 'its folder was deleted before');
        t.equal(await dated.deleteMinute(minute), 1);
        t.equal(await dated.deleteMinute(minute + 1), 1);
        t.strictSame(await dated.minutes(new Date()), []);
        t.equal((await read('jobs/beside')).toString(), 'kept');
      });
    }

    t.test('an unreachable store is reported without its address', async () => {
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
      await assert.rejects(unreachable.dated.x402.put(uuidv7(), Buffer.from('x'), MIME_TYPE), isUnavailable);
      await assert.rejects(unreachable.dated.x402.open(uuidv7()), isUnavailable);
      await assert.rejects(unreachable.dated.x402.minutes(new Date()), isUnavailable);
      await assert.rejects(unreachable.dated.x402.deleteMinute(1), isUnavailable);
      await unreachable.close();
    });
  });
}

function sha256(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex');
}
