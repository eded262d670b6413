import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { resolve } from 'node:path';
import { childEnv, findProgram } from '../../lib/programs.ts';
import { UsageError } from '../../lib/usage-error.ts';

/** Programs that play MP3 and WAV, exit at the end, and print nothing. */
const PLAYERS: readonly (readonly [program: string, ...args: string[]])[] = [
  ['ffplay', '-nodisp', '-autoexit', '-loglevel', 'error'],
  ['mpv', '--no-video', '--really-quiet'],
  ['mpg123', '-q'],
  ['afplay'],
  ['play', '-q'],
];

export type Player = readonly [program: string, ...args: string[]];

export async function findPlayer(env: NodeJS.ProcessEnv): Promise<Player> {
  for (const [name, ...args] of PLAYERS) {
    const program = await findProgram(name, env);
    if (program) return [program, ...args];
  }
  const install = process.platform === 'darwin' ? 'brew install ffmpeg' : 'apt install mpg123';
  throw new UsageError(`--play found no player. Install ffmpeg, mpv or mpg123 (${install}), or remove --play.`);
}

export async function play([program, ...args]: Player, path: string, env: NodeJS.ProcessEnv): Promise<boolean> {
  // An absolute path, because a leading dash would be an option.
  const player = spawn(program, [...args, resolve(path)], {
    stdio: ['ignore', 'ignore', 'inherit'],
    env: childEnv(env),
  });
  const [code] = await once(player, 'exit');
  return code === 0;
}
