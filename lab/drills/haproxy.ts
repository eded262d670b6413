import { missingProgram } from '../../test/support/missing-program.ts';

/** Why tests with HAProxy are skipped; false where it is installed. */
export const withoutHaproxy: string | false = missingProgram('haproxy', '-v') ?? missingProgram('socat', '-V') ?? false;

/** Whether a command in a document is for HAProxy's own socket. */
export const speaksToHaproxy = (command: string): boolean => command.includes('socat stdio');
