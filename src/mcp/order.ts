import type { SpeechOrder } from '../client/index.ts';
import { number, text } from './arguments.ts';

/** How a text is spoken, as a tool's arguments. */
export const ORDER_ARGUMENTS = {
  voice: text('voice', "A voice's id from list_voices; the model's default voice when left out."),
  model: text('model', "A model's id from list_voices; the default model when left out."),
  speed: number('speed', { min: 0.5, max: 2 }, '0.5 (half as fast) to 2 (twice as fast); 1 when left out.'),
};

interface OrderArguments {
  readonly voice?: string | undefined;
  readonly model?: string | undefined;
  readonly speed?: number | undefined;
}

export const orderOf = (text: string, { voice, model, speed }: OrderArguments): SpeechOrder => ({
  text: text.trim(),
  ...(voice !== undefined && { voice }),
  ...(model !== undefined && { model }),
  ...(speed !== undefined && speed !== 1 && { speed }),
});
