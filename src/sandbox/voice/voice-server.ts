import Fastify, { type FastifyError, type FastifyReply } from 'fastify';
import { BusyError, Voice, type VoiceOptions } from './voice.ts';
import type { Utterance } from './voice-worker.ts';

const MODELS = ['tts-1', 'tts-1-hd'];
const MAX_INPUT_CHARACTERS = 4096;
const MAX_BODY_BYTES = 64 * 1024;
const RETRY_AFTER_SECONDS = 5;
const KEEP_ALIVE_MS = 5_000;
/** A letter of a script other than Latin. Letters that scripts share, such as the micro sign, are allowed. */
const FOREIGN_LETTER = /(?!\p{Script=Latin}|\p{Script=Common}|\p{Script=Inherited})\p{L}/u;

interface SpeechRequest extends Omit<Utterance, 'text' | 'speed'> {
  readonly input: string;
  readonly speed?: number;
}

const text = { type: 'string', minLength: 1, maxLength: 100 };
const speechRequest = {
  type: 'object',
  required: ['model', 'input', 'voice'],
  properties: {
    model: text,
    input: { type: 'string', minLength: 1, maxLength: MAX_INPUT_CHARACTERS },
    voice: text,
    speed: { type: 'number', minimum: 0.5, maximum: 2 },
    response_format: { type: 'string', enum: ['mp3'] },
  },
};

export async function startVoiceServer({
  host = '127.0.0.1',
  port,
  ...options
}: VoiceOptions & { readonly host?: string; readonly port: number }) {
  const app = Fastify({
    bodyLimit: MAX_BODY_BYTES,
    forceCloseConnections: 'idle',
    // How long a connection that is busy at shutdown stays open after its response.
    keepAliveTimeout: KEEP_ALIVE_MS,
    ajv: { customOptions: { coerceTypes: false } },
  });
  app.setErrorHandler<FastifyError>((error, _request, reply) => refuse(reply, error));
  app.setNotFoundHandler((_request, reply) =>
    sendError(reply, 404, 'This path does not exist. Use /v1/audio/speech or /v1/models.'),
  );

  app.get('/v1/models', () => ({
    object: 'list',
    data: MODELS.map((id) => ({ id, object: 'model', created: 0, owned_by: 'speechgate' })),
  }));

  app.post<{ Body: SpeechRequest }>('/v1/audio/speech', { schema: { body: speechRequest } }, async (request, reply) => {
    const { input, speed = 1, model, voice: name } = request.body;
    const foreign = FOREIGN_LETTER.exec(input)?.index;
    if (foreign !== undefined) {
      const message = `input has a letter that is not Latin at character ${foreign + 1}. This voice reads only English, so send English text.`;
      return sendError(reply, 400, message, 'input');
    }
    const disconnected = new AbortController();
    reply.raw.on('close', () => disconnected.abort());
    const audio = await voice.speak({ text: input, model, voice: name, speed }, disconnected.signal);
    return reply.type('audio/mpeg').send(audio);
  });

  const voice = new Voice(options);
  const close = async () => {
    await app.close();
    await voice.close();
  };
  const origin = await app.listen({ host, port }).catch(async (error) => {
    await close();
    throw error;
  });
  return { baseUrl: `${origin}/v1`, close };
}

function refuse(reply: FastifyReply, error: FastifyError): FastifyReply {
  if (error instanceof BusyError) {
    reply.header('retry-after', RETRY_AFTER_SECONDS);
    return sendError(reply, 503, 'The voice server has too many texts in its queue. Retry later.');
  }
  const [fault] = error.validation ?? [];
  const param = fault && (fault.instancePath.slice(1) || `${fault.params.missingProperty ?? ''}`);
  const { statusCode = 500 } = error;
  const message = statusCode < 500 ? error.message : 'The voice server failed to speak the text. Try again.';
  return sendError(reply, statusCode, message, param);
}

function sendError(reply: FastifyReply, status: number, message: string, param?: string): FastifyReply {
  const type = status < 500 ? 'invalid_request_error' : 'server_error';
  return reply.code(status).send({ error: { message, type, param: param || null, code: null } });
}
