import assert from 'node:assert/strict';
import { type Answer, assertContract, operationAt } from '../support/contract.ts';
import type { Conversation, Target } from './conversation.ts';
import { EDGE, faultOfAnswer } from './oracle.ts';

/** Refusals that the edge gives before it knows an operation, or because what it reads is no HTTP. */
const REFUSED_AT_EDGE = new Set([400, 404, 405, 408, 413, 417, 429, 431]);

/** How an answer counts: the operation that gave it, or `edge`, and its status. */
export interface Judged {
  readonly operation: string;
  readonly status: number;
}

/**
 * Holds the answers of a conversation against the contract, by the tests' own check and by the foreign one.
 * @throws when one is not declared, is a 5xx, or there are more answers than requests
 */
export function judge({ targets, isHttp, ending }: Conversation, answers: readonly Answer[]): Judged[] {
  if (isHttp && ending === 'answered')
    assert.equal(answers.length, targets.length, `${answers.length} answers to ${targets.length} requests`);
  return answers.map((answer, at) => {
    const target = targets[at];
    if (target) return isHttp ? judgeAnswer(target, answer) : judgeEither(target, answer);
    // What was left of a body that is longer than its head says is no request, and the last thing that is answered.
    assert.deepEqual([at, answer.status], [targets.length, 400], 'an answer that nobody asked for');
    assert.equal(answer.headers.get('connection'), 'close');
    return judgeAnswer(NOWHERE, answer);
  });
}

const NOWHERE: Target = { method: 'GET', path: '/nowhere' };

/** The answer to a request that reached its operation. */
export function judgeAnswer(target: Target, answer: Answer): Judged {
  const { method, path } = target;
  const { status } = answer;
  const operation = operationAt(method, path);
  // The page of a purchase that was made up: the processor knows none.
  const isMadeUp = operation?.operationId === 'completeTopUp' && status === 502;
  assert.ok(
    status < 500 || isMadeUp,
    `${method} ${path.slice(0, 200)} answered ${status}: ${answer.bytes.toString().slice(0, 500)}`,
  );
  assertContract(method, path, answer);
  const fault = faultOfAnswer(operation ?? EDGE, answer, method === 'HEAD');
  assert.equal(
    fault,
    undefined,
    `openapi-enforcer on ${method} ${path.slice(0, 200)} ${status}: ${fault}\n${answer.bytes.toString().slice(0, 500)}`,
  );
  return { operation: operation?.operationId ?? 'edge', status };
}

function judgeEither(target: Target, answer: Answer): Judged {
  try {
    return judgeAnswer(target, answer);
  } catch (error) {
    if (!REFUSED_AT_EDGE.has(answer.status)) throw error;
    return judgeAnswer({ ...NOWHERE, method: target.method === 'HEAD' ? 'HEAD' : 'GET' }, answer);
  }
}
