import { serviceWords } from '../../lib/service-words.ts';
import { defineCommand } from './command.ts';
import { assertTrust, withCaller } from './open-caller.ts';
import { ALL_OPTION, ALL_USAGE, rowsOf } from './output.ts';

export const verifyMetadataCommand = defineCommand({
  usage: `speechgate verify-metadata
Reads the metadata of the service (payee, network, asset, prices) and verifies its signature with the pinned keys.
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
