import { assertTrust } from './can-pay.ts';
import { COMMON_OPTIONS, runCommand } from './command.ts';
import { openCaller } from './open-caller.ts';
import { withProgress } from './progress.ts';

/** `speechgate verify-metadata` */
await runCommand({
  usage: `speechgate verify-metadata
Reads what the service says of itself (payee, network, asset, prices) and holds its signature against the pinned keys.
`,
  example: 'speechgate verify-metadata',
  options: COMMON_OPTIONS,
  maxWords: 0,
  run: async (_values, _words, output) => {
    const caller = await openCaller();
    assertTrust(caller.settings);
    const metadata = await withProgress('Asking for the metadata', output.isJson, caller.client.metadata());
    const { service, payment, pricing, validity } = metadata;
    const payee = payment.payees.find(({ status }) => status === 'current');
    output.done(metadata, [
      `${service.name} at ${service.origin}: signed by a key that is trusted here, until ${validity.validUntil}`,
      `payee    ${payee?.address}`,
      `network  ${payment.network}`,
      `asset    ${payment.asset.symbol} ${payment.asset.address}`,
      ...pricing.models.map(({ id, ratePerCharacterUsd }) => `model    ${id}: ${ratePerCharacterUsd} USD a character`),
    ]);
  },
});
