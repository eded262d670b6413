import pg from 'pg';
import type { Test } from 'tap';

/** A statement as it was handed to the driver. */
interface RecordedStatement {
  readonly text: string;
  readonly values: readonly unknown[];
}

interface StatementRecorder {
  readonly recorded: readonly RecordedStatement[];
  /** Tells what was recorded, and forgets it. */
  take(): RecordedStatement[];
  /** Keeps the next statement with such a text from the database until it is let go; `held` resolves when it has come. */
  holdBack(text: RegExp): HeldBack;
  /** Has the database answer the next statement with such a text and parameters, and keeps its answer until that is let go. */
  holdBackAnswer(text: RegExp): HeldBack;
  /** Has the database carry out the next statement with such a text, and breaks its connection instead of answering. */
  loseAnswer(text: RegExp): void;
}

interface HeldBack {
  readonly held: Promise<void>;
  letGo(): void;
}

interface Obstacle {
  readonly text: RegExp;
  readonly come: () => void;
  readonly isGone: Promise<void>;
  readonly isOfAnswer: boolean;
}

/** The statement that captures holds. */
export const CAPTURE = /^update "transfer" set "state"/;

/** Statements that come by the clock or with a new connection, and those that end the database of an earlier test. */
const UPKEEP = /paused_flow|"graphile_worker"|^drop database|^\s*select set_config\(name, value, false\)/;

/** Records what this process asks of databases from now on, by whichever connection, until the test ends. */
export function recordStatements(t: Test): StatementRecorder {
  const { query } = pg.Client.prototype;
  const recorded: RecordedStatement[] = [];
  let obstacle: Obstacle | undefined;
  let lossy: RegExp | undefined;
  pg.Client.prototype.query = function (this: pg.Client, ...parameters: unknown[]) {
    const [first, second] = parameters as [string | RecordedStatement, unknown[] | undefined];
    const { text, values } = typeof first === 'string' ? { text: first, values: second ?? [] } : first;
    if (!UPKEEP.test(text)) recorded.push({ text, values: values ?? [] });
    const ask = () => Reflect.apply(query, this, parameters);
    if (lossy?.test(text)) {
      lossy = undefined;
      return loseAnswerOf(this, first, ask);
    }
    if (!obstacle?.text.test(text)) return ask();
    const { come, isGone, isOfAnswer } = obstacle;
    obstacle = undefined;
    if (!isOfAnswer) {
      come();
      return isGone.then(ask);
    }
    const asked = first as unknown as { callback: (...answer: unknown[]) => void };
    const { callback } = asked;
    asked.callback = (...answer) => {
      come();
      isGone.then(() => callback(...answer));
    };
    return ask();
  } as typeof query;
  t.teardown(() => {
    pg.Client.prototype.query = query;
  });
  const holdBack = (text: RegExp, isOfAnswer: boolean): HeldBack => {
    let letGo = () => {};
    const isGone = new Promise<void>((resolve) => {
      letGo = resolve;
    });
    const held = new Promise<void>((come) => {
      obstacle = { text, come, isGone, isOfAnswer };
    });
    return { held, letGo };
  };
  return {
    recorded,
    take: () => recorded.splice(0),
    holdBack: (text) => holdBack(text, false),
    holdBackAnswer: (text) => holdBack(text, true),
    loseAnswer: (text) => {
      lossy = text;
    },
  };
}

/** A statement is a text, whose answer is a promise, or has a callback. */
function loseAnswerOf(client: pg.Client, statement: string | object, ask: () => unknown): unknown {
  const lost = Object.assign(new Error('Connection terminated unexpectedly'), { code: 'ECONNRESET' });
  if (typeof statement === 'string') {
    return Promise.resolve(ask()).then(() => {
      void client.end();
      throw lost;
    });
  }
  const asked = statement as { callback: (error: Error) => void };
  const { callback } = asked;
  asked.callback = () => {
    void client.end();
    callback(lost);
  };
  return ask();
}
