import { printable, printableJson } from '../printable.ts';
import type { Failure } from './failure.ts';

/** What a command tells: its result on standard output, all else on standard error. */
export class Output {
  readonly isJson: boolean;

  constructor(isJson: boolean) {
    this.isJson = isJson;
  }

  /** The result, as JSON or as lines for people. */
  done(document: object, lines: readonly string[]): void {
    if (this.isJson) console.log(printableJson(document));
    else for (const line of lines) console.log(printable(line));
  }

  /** What a person may want to know beside the result. */
  note(line: string): void {
    if (!this.isJson) console.error(printable(line));
  }

  failed({ message, ...failure }: Failure): void {
    console.error(this.isJson ? printableJson({ error: { ...failure, message } }) : printable(message));
  }
}
