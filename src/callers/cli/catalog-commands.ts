import { counted } from '../../lib/counted.ts';
import { formatUsd } from '../../lib/money.ts';
import { serviceWords } from '../../lib/service-words.ts';
import { defineCommand } from './command.ts';
import { assertTrust, withCaller } from './open-caller.ts';
import { ALL_OPTION, ALL_USAGE, rowsOf } from './output.ts';
import { idsOf, readOrder, SPEECH_OPTIONS, SPEECH_USAGE } from './read-values.ts';

export const modelsCommand = defineCommand({
  usage: `speechgate models
Lists the models of the service, their prices, and the maximum characters of a request.
${ALL_USAGE}`,
  example: 'speechgate models',
  options: ALL_OPTION,
  run: async ({ all }, { output, host }) => {
    await withCaller(host, {}, async ({ client }) => {
      const { models, defaultModel } = await output.withProgress('Reading the models', client.models());
      const head = ['model', 'per 1,000,000 characters', 'max characters', 'name'];
      const lines = rowsOf(
        models,
        { all },
        ({ id, pricing, maxInputCharacters, name, available }) => {
          const remarks = [name, id === defaultModel ? 'the default' : '', available ? '' : 'unavailable'];
          const rate = `${pricing.ratePerMillionCharsUsd.toFixed(6)} USD`;
          return [id, rate, String(maxInputCharacters), remarks.filter(Boolean).join(', ')];
        },
        head,
      );
      output.done({ defaultModel, models }, lines);
    });
  },
});

export const voicesCommand = defineCommand({
  usage: `speechgate voices [--model MODEL]
Lists the voices of a model, for say --voice.

  --model MODEL    a model from speechgate models; default: the default model${ALL_USAGE}`,
  example: 'speechgate voices',
  options: { ...ALL_OPTION, model: { type: 'string' } },
  run: async ({ model, all }, { output, host }) => {
    await withCaller(host, {}, async ({ client }) => {
      const named = model === undefined ? {} : await idsOf({ model }, client);
      const listed = await output.withProgress('Reading the voices', client.voices(named.model));
      const lines = rowsOf(listed.voices, { all }, ({ id, name }) => [id, name], ['voice', 'name']);
      output.done({ model: listed.model, voices: listed.voices }, lines);
    });
  },
});

export const quoteCommand = defineCommand({
  usage: `speechgate quote TEXT|-
Shows the price of a text. Sends only its length and SHA-256.
${SPEECH_USAGE}`,
  example: 'speechgate quote "Hello world"',
  options: SPEECH_OPTIONS,
  maxWords: 1,
  run: async (values, { words: [word], output, host }) => {
    const order = await readOrder(values, word, host.stdin);
    await withCaller(host, {}, async ({ client }) => {
      const named = { ...order, ...(await idsOf(order, client)) };
      const quote = await output.withProgress('Reading the price', client.quote(named));
      const { textLength, model, amountMicroUsd, expiresAt } = quote;
      output.done(quote, [
        `${counted(textLength, 'character')} with ${serviceWords(model)}: ${formatUsd(amountMicroUsd)} USD until ${serviceWords(expiresAt)}`,
      ]);
    });
  },
});

export const verifyMetadataCommand = defineCommand({
  usage: `speechgate verify-metadata
Reads the metadata of the service (payee, network, asset, prices) and verifies its signature with the trusted keys.
${ALL_USAGE}`,
  example: 'speechgate verify-metadata',
  options: ALL_OPTION,
  run: async ({ all }, { output, host }) => {
    await withCaller(host, {}, async (caller) => {
      assertTrust(caller.settings);
      const metadata = await output.withProgress('Reading the metadata', caller.client.metadata());
      const { service, payment, pricing, validity } = metadata;
      const payee = payment.payees.find(({ status }) => status === 'current');
      output.done(metadata, [
        `${serviceWords(service.name)} at ${service.origin}: signed by a trusted key, valid until ${validity.validUntil}`,
        `payee    ${payee?.address}`,
        `network  ${payment.network}`,
        `asset    ${serviceWords(payment.asset.symbol)} ${payment.asset.address}`,
        ...rowsOf(pricing.models, { all }, ({ id, ratePerCharacterUsd }) => [
          `model    ${id}: ${ratePerCharacterUsd} USD a character`,
        ]),
      ]);
    });
  },
});
