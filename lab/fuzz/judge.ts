import assert from 'node:assert/strict';
import { type Answer, assertContract, operationAt } from '../../test/support/contract.ts';
import type { Heard, Sent } from '../soak/callers/line.ts';
import type { Conversation, Target } from './conversation.ts';
import { EDGE, faultOfAnswer } from './oracle.ts';

/** Refusals by the edge: before routing, or because the bytes are not HTTP. */
const REFUSED_AT_EDGE = new Set([400, 404, 405, 408, 413, 417, 429, 431]);

/** The operation that responded, or `edge`, and the status. */
export interface Judged {
  readonly operation: string;
  readonly status: number;
}

/**
 * Checks responses with the tests' own validator and with the oracle.
 * @throws when one is undeclared or a 5xx, or when there are more responses than requests
 */
export function judge({ targets, isHttp, ending }: Conversation, answers: readonly Answer[]): Judged[] {
  if (isHttp && ending === 'answered')
    assert.equal(answers.length, targets.length, `${answers.length} answers to ${targets.length} requests`);
  return answers.map((answer, at) => {
    const target = targets[at];
    if (target) return isHttp ? judgeAnswer(target, answer) : judgeEither(target, answer);
    // Bytes beyond the declared body length count as one more, invalid request. Its response is the last.
    assert.deepEqual([at, answer.status], [targets.length, 400], 'an answer that nobody asked for');
    assert.equal(answer.headers.get('connection'), 'close');
    return judgeAnswer(NOWHERE, answer);
  });
}

const NOWHERE: Target = { method: 'GET', path: '/nowhere' };

function judgeAnswer(target: Target, answer: Answer): Judged {
  const { method, path } = target;
  const { status } = answer;
  const operation = operationAt(method, path);
  // The processor does not know an invented checkout session.
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

/** A response to a caller of the soak. */
export function judgeHeard({ method, path }: Sent, { status, headers, body, isWhole }: Heard): Judged {
  assert.ok(isWhole, `${method} ${path} was answered ${status}, and not to the end`);
  const fields = Object.entries(headers).map(([name, value]): [string, string] => [name, String(value)]);
  return judgeAnswer({ method, path }, { status, headers: new Headers(fields), bytes: body });
}

function judgeEither(target: Target, answer: Answer): Judged {
  try {
    return judgeAnswer(target, answer);
  } catch (error) {
    if (!REFUSED_AT_EDGE.has(answer.status)) throw error;
    return judgeAnswer({ ...NOWHERE, method: target.method === 'HEAD' ? 'HEAD' : 'GET' }, answer);
  }
}
