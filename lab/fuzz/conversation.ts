import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { within } from '../../src/lib/within.ts';
import { type RawAnswer, readAnswers } from '../../test/support/raw-http.ts';

export interface Target {
  readonly method: string;
  /** With its query. */
  readonly path: string;
}

/**
 * What the client does after it has sent everything. `answered`: waits for the responses, or for silence if there may
 * be none, then closes. `half-close`: closes its side at once. `reset`: resets the connection. `of the server`: leaves
 * the connection to the server.
 */
export type Ending = 'answered' | 'half-close' | 'reset' | 'of the server';

export interface Conversation {
  /** Bytes as latin1, one packet each. */
  readonly pieces: readonly string[];
  /** Between two packets. */
  readonly pauseMs: number;
  readonly ending: Ending;
  readonly targets: readonly Target[];
  /** All of it is valid HTTP, so there is exactly one response for each target. */
  readonly isHttp: boolean;
}

/** Longer than the slowest operation plus the two seconds that the server lingers after a refusal. */
const CLOSED_WITHIN_MS = 20_000;
/** Node checks for late requests every 30 s and allows 30 s for a request. */
const SERVER_CLOSES_WITHIN_MS = 75_000;
/** Without valid HTTP, the client closes its side after this long without data. */
const QUIET_MS = 300;
const POLL_MS = 4;
const ANSWER = Buffer.from('HTTP/1.1 ');

/**
 * Runs a conversation with the gateway. @returns complete responses only
 * @throws when the connection stays open too long or is cut, or a response is incomplete
 */
export async function converse(url: string, conversation: Conversation): Promise<RawAnswer[]> {
  const { pieces, pauseMs, ending, targets, isHttp } = conversation;
  const methods = targets.map(({ method }) => method);
  const socket = connect({ port: Number(new URL(url).port), host: '127.0.0.1', allowHalfOpen: true, noDelay: true });
  const chunks: Buffer[] = [];
  let fault: NodeJS.ErrnoException | undefined;
  let heardAt = performance.now();
  socket.on('data', (chunk) => {
    chunks.push(chunk);
    heardAt = performance.now();
  });
  socket.on('error', (error) => {
    fault = error;
  });
  const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()));
  let isOver = false;
  const ended = Promise.race([new Promise<void>((resolve) => socket.once('end', () => resolve())), closed]).then(() => {
    isOver = true;
  });
  await once(socket, 'connect');
  for (const [at, piece] of pieces.entries()) {
    if (at > 0 && pauseMs > 0) await sleep(pauseMs);
    if (isOver) break;
    socket.write(piece, 'latin1');
  }
  if (ending === 'reset') {
    socket.resetAndDestroy();
    await closed;
    return [];
  }
  if (ending === 'half-close') socket.end();
  if (ending === 'answered') {
    heardAt = performance.now();
    const isAnswered = () => finalOnly(readAnswers(Buffer.concat(chunks), methods).answers).length >= targets.length;
    const timeoutMs = isHttp ? CLOSED_WITHIN_MS : QUIET_MS;
    while (!isOver && !isAnswered() && performance.now() - heardAt < timeoutMs) {
      await Promise.race([ended, sleep(POLL_MS)]);
    }
    socket.end();
  }
  const bound = ending === 'of the server' ? SERVER_CLOSES_WITHIN_MS : CLOSED_WITHIN_MS;
  await within(bound, ended);
  socket.end();
  if (!isOver) socket.destroy();
  assert.ok(isOver, `the connection was still open after ${bound} ms`);
  await closed;
  const { answers, rest } = readAnswers(Buffer.concat(chunks), methods);
  const final = finalOnly(answers);
  const hasLeft = ending === 'half-close' || (ending === 'answered' && final.length < targets.length && !isHttp);
  const isCutForLeaving = hasLeft && rest.subarray(0, ANSWER.length).equals(ANSWER);
  // The server cannot know that an unreadable request was HEAD, so it sends a body.
  const isUnread = !isHttp && rest.length === Number(answers.at(-1)?.headers.get('content-length'));
  assert.ok(
    rest.length === 0 || isCutForLeaving || isUnread,
    `an answer is cut, or none: ${rest.subarray(0, 300).toString('latin1')}`,
  );
  assert.ok(fault === undefined || final.length >= targets.length, `the connection was cut: ${fault}`);
  return final;
}

const finalOnly = (answers: readonly RawAnswer[]): RawAnswer[] => answers.filter(({ status }) => status >= 200);
