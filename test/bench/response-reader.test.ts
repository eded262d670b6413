import assert from 'node:assert/strict';
import { test } from 'tap';
import { ResponseReader } from '../../bench/load/response-reader.ts';

const CHUNKED =
  'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab\r\nc\r\n1a\r\n01234567890123456789012345\r\n0\r\n\r\n';
const WITH_LENGTH = 'HTTP/1.1 402 Payment Required\r\nx: content-length: 9\r\nContent-Length: 7\r\n\r\nHTTP/1.';
const EMPTY = 'HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n';

/** Reads the bytes in pieces of this size. */
function read(text: string, size: number) {
  const answers: [number, number][] = [];
  let firstBytes = 0;
  const reader = new ResponseReader(
    (status, bytes) => answers.push([status, bytes]),
    () => firstBytes++,
  );
  const bytes = Buffer.from(text);
  const reused = Buffer.alloc(size);
  for (let at = 0; at < bytes.length; at += size) reader.push(reused.subarray(0, bytes.copy(reused, 0, at, at + size)));
  return { answers, firstBytes };
}

test('answers are counted wherever reads divide them', async () => {
  for (let size = 1; size <= 200; size++) {
    assert.deepEqual(
      read(CHUNKED + WITH_LENGTH + EMPTY + CHUNKED, size),
      {
        answers: [
          [200, 31],
          [402, 7],
          [204, 0],
          [200, 31],
        ],
        firstBytes: 3,
      },
      `reads of ${size} bytes`,
    );
  }
});

test('an answer that is not whole is not counted', async () => {
  assert.deepEqual(read(CHUNKED.slice(0, -1), 100).answers, []);
  assert.deepEqual(read(WITH_LENGTH.slice(0, -1), 100).answers, []);
});

test('an answer without a length is refused', async () => {
  assert.throws(() => read('HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n', 100), /without a length/);
});
