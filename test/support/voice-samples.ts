import type { Gateway } from './gateway.ts';
import { operatorCommand } from './operator-command.ts';
import type { CommandRun } from './speechgate.ts';

/** The operator's command, for this gateway. */
export const makeSamples = ({ config }: Gateway, ...args: string[]): Promise<CommandRun> =>
  operatorCommand(
    {
      DATABASE_URL: config.databaseUrl,
      SPEECH_BASE_URL: config.speech?.baseUrl ?? '',
      AUDIO_STORE: config.jobs.audioStore,
    },
    'samples',
    ...args,
  );
