import { writeFile } from 'node:fs/promises';
import OpenAI from 'openai';

const openai = new OpenAI(); // Reads OPENAI_BASE_URL and OPENAI_API_KEY.
const input = 'Hello world, spoken for a program that knows nothing of payment.';
const response = await openai.audio.speech.create({ model: 'tts-1', voice: 'alloy', input, response_format: 'mp3' });
await writeFile('openai.mp3', Buffer.from(await response.arrayBuffer()));
console.log('openai.mp3', response.headers.get('x-speechgate-charged-usd'));
