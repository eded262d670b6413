import { endWith, readArguments, usageLine } from '../lib/arguments.ts';
import { stopOnce } from '../lib/stop-once.ts';
import { startVoiceServer } from './voice/voice-server.ts';

const STOP_TIMEOUT_MS = 60_000;
const USAGE = `speechgate voice [--port N] [--host ADDRESS]
Starts a speech server with OpenAI's API that needs nothing else, and prints its URL for SPEECH_BASE_URL. It reads English
only. Default of --port: a free port; default of --host: 127.0.0.1.`;

const { values } = readArguments({
  usage: USAGE,
  options: { port: { type: 'string', default: '0' }, host: { type: 'string', default: '127.0.0.1' } },
});
const port = /^\d{1,5}$/.test(values.port) ? Number(values.port) : Number.NaN;
if (!(port <= 65_535)) endWith(`--port must be a number from 0 to 65535, not ${values.port}.\n${usageLine(USAGE)}`);
const server = await startVoiceServer({ host: values.host, port }).catch((error: Error) =>
  endWith(`The voice server can't listen on ${values.host} (${error.message}). Name another --host or --port.`),
);
stopOnce({ timeoutMs: STOP_TIMEOUT_MS, logger: false }, () => server.close());
console.log(`The voice server listens on ${server.baseUrl}`);
