/** The commands of callers, as people and programs call them, on one sandbox: most of them in this process. */
import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { cp, mkdir, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'tap';
import { changeConfig } from '../../../src/callers/cli/stored-settings.ts';
import { openDatabase } from '../../../src/db/database.ts';
import { findBinary } from '../../../src/sandbox/chain/anvil.ts';
import { callerCommand, startCallerCommand } from '../../support/caller-command.ts';
import { startChild } from '../../support/child.ts';
import { testDatabase } from '../../support/database.ts';
import { sandboxFolder } from '../../support/sandbox-folder.ts';
import { type CommandRun, speechgate } from '../../support/speechgate.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';
import { until } from '../../support/until.ts';

const HELLO_PRICE = 198;
const MP3 = /^(ID3|\xff[\xe2-\xff])/;
const NOBODY = 'http://127.0.0.1:1';
const OWNER_ONLY = 0o600;
const isMp3 = (bytes: Buffer): boolean => MP3.test(bytes.subarray(0, 3).toString('latin1'));

/** What the command has told as JSON, once it has ended well. */
function told({ code, out, err }: CommandRun) {
  assert.equal(code, 0, err);
  return JSON.parse(out);
}

/** The error that the command has told as JSON, with the exit code that it names. */
function failed({ code, out, err }: CommandRun) {
  assert.equal(out, '');
  const { error } = JSON.parse(err);
  assert.equal(error.exit, code);
  return error;
}

test('the caller commands work end to end on one sandbox', {
  skip: findBinary() ? false : 'no chain can run here',
}, async (t) => {
  const dataDir = await sandboxFolder(t);
  const folder = await temporaryFolder(t);
  const { url } = await testDatabase(t);
  const places = { DATA_DIR: dataDir, SANDBOX_DATABASE_URL: url, PORT: '0' };
  await startChild(t, 'src/speechgate.ts', places, ['sandbox']).printed(/Ctrl-C stops the sandbox/);
  const { baseUrl, creditAccount, wallet } = JSON.parse(await readFile(join(dataDir, 'sandbox.json'), 'utf8'));
  const env = { XDG_CONFIG_HOME: join(folder, 'config') };
  const config = join(folder, 'config', 'speechgate');
  const hello = ['say', 'Hello world', '--out', join(folder, 'hello.mp3')];
  const say = (env: Record<string, string>, ...args: string[]) => callerCommand(env, ...hello, ...args);
  const balance = async (pay: string) =>
    told(await callerCommand(env, 'balance', '--json', '--pay', pay)).balanceMicroUsd;

  await t.test('two commands suffice to speak, and only the owner can read their files', async (t) => {
    const connected = await speechgate(env, 'connect', '--sandbox', dataDir);
    t.equal(connected.code, 0, connected.err);
    for (const secret of [creditAccount, wallet.privateKey]) t.ok(!connected.output.includes(secret));
    const spoken = told(await speechgate(env, ...hello, '--json'));
    t.equal(spoken.receipt.chargedMicroUsd, HELLO_PRICE);
    const audio = await readFile(spoken.file);
    t.strictSame([audio.length, isMp3(audio)], [spoken.bytes, true]);
    t.equal((await stat(config)).mode & 0o777, 0o700);
    for (const name of ['config.json', 'wallet.json', 'trust.json', 'budget.jsonl'])
      t.equal((await stat(join(config, name))).mode & 0o777, OWNER_ONLY, name);
    t.ok(!(await readdir(folder)).some((name) => name.endsWith('.part')));
  });

  await t.test('free commands print text for people and JSON for programs', async (t) => {
    const [models, voices, quote, metadata, piped, masked, shown] = await Promise.all([
      callerCommand(env, 'models'),
      callerCommand(env, 'voices', '--model', 'tts-1-hd', '--json'),
      startCallerCommand(env, ['quote', '-', '--json', '--model', 'TTS-1-HD', '--voice', 'nova'], ' Hello world\n')
        .ended,
      callerCommand(env, 'verify-metadata'),
      startCallerCommand(env, ['say', '-', '--out', '-'], 'Hello world').ended,
      callerCommand(env, 'account'),
      callerCommand(env, 'account', '--show'),
    ]);
    t.match(
      models.out,
      /^model +per 1,000,000 characters +max characters +name\nprovider-a\/tts-1 +18\.000000 USD +4096 .*the default$/m,
    );
    t.ok(told(voices).voices.some(({ id }: { id: string }) => id === 'provider-a_alloy'));
    const { amountMicroUsd, textLength, model } = told(quote);
    t.strictSame([amountMicroUsd, textLength, model], [2 * HELLO_PRICE, 11, 'provider-a/tts-1-hd']);
    t.match(metadata.out, /signed by a trusted key/);
    t.ok(isMp3(piped.bytes), 'audio on standard output');
    t.match(piped.err, /0\.000198 USD paid \(card\)/);
    t.equal(masked.out, `${creditAccount.slice(0, 8)}… (--show prints the whole id)\n`);
    t.equal(shown.out, `${creditAccount}\n`);
  });

  await t.test("balance --pay x402 also prints the wallet's own USDC", async (t) => {
    const { out, err } = await callerCommand(env, 'balance', '--pay', 'x402');
    t.equal(
      out,
      `20.000000 USDC in the wallet ${wallet.address}\n0.000000 USD (prepaid balance of ${wallet.address})\n`,
      err,
    );
    const wrongNode = await callerCommand({ ...env, SPEECHGATE_RPC_URL: NOBODY }, 'balance', '--pay', 'x402', '--json');
    t.match(failed(wrongNode).message, /^The node 127\.0\.0\.1:1 did not return the wallet.s balance\./);
  });

  await t.test('exit 3: without funds each flow names how to add them', async (t) => {
    const none = { SPEECHGATE_CONFIG_DIR: join(folder, 'none'), SPEECHGATE_URL: baseUrl };
    // A budget of its own: what was signed stays set aside there until it has expired.
    const poor = join(folder, 'poor');
    await cp(env.XDG_CONFIG_HOME, poor, { recursive: true });
    const [noUsdc, noAccount, noDeposit, unknownAccount] = await Promise.all([
      callerCommand({ XDG_CONFIG_HOME: poor }, 'deposit', '30'),
      say(none, '--json'),
      say({ XDG_CONFIG_HOME: poor }, '--pay', 'prepaid'),
      callerCommand({ ...none, SPEECHGATE_ACCOUNT: crypto.randomUUID() }, 'say', 'x', '--out', '-', '--pay', 'card'),
    ]);
    t.strictSame([failed(noAccount).exit, failed(noAccount).topUpUrl], [3, `${baseUrl}/top-up`]);
    t.equal(noUsdc.code, 3, noUsdc.err);
    t.match(
      noUsdc.err,
      /^Insufficient funds\. .*Restart the sandbox: it refills its wallet .* Do not send real USDC to this wallet$/m,
    );
    t.strictSame([noDeposit.code, noDeposit.out], [3, '']);
    t.match(noDeposit.err, /0\.000198 USD is missing\. .*speechgate deposit 1\.00\n$/);
    t.equal(unknownAccount.code, 3, unknownAccount.err);
    t.match(
      unknownAccount.err,
      /^This credit account does not exist at the service\. You were not charged\. .*speechgate top-up \(or http:\S+\)\n$/m,
    );
  });

  await t.test('a deposit pays for prepaid requests, and the budget sums all flows', async (t) => {
    t.equal(told(await callerCommand(env, 'deposit', '0.10', '--json')).balanceMicroUsd, 100_000);
    const [prepaid, direct] = await Promise.all([
      say(env, '--json', '--pay', 'prepaid'),
      say(env, '--json', '--pay', 'x402'),
    ]);
    t.strictSame([told(prepaid).receipt.flow, told(direct).receipt.flow], ['prepaid', 'direct']);
    const [left, budget] = await Promise.all([balance('prepaid'), callerCommand(env, 'budget', '--json')]);
    t.equal(left, 100_000 - HELLO_PRICE);
    const { spentMicroUsd, reservedMicroUsd } = told(budget);
    t.strictSame([spentMicroUsd, reservedMicroUsd], [4 * HELLO_PRICE, 0]);
  });

  await t.test('exit 4: a price over a cap is refused, and nothing is signed', async (t) => {
    const before = await balance('prepaid');
    const [call, day] = await Promise.all([
      say(env, '--max', '0.000197', '--pay', 'prepaid'),
      say({ ...env, SPEECHGATE_MAX_PER_DAY: '0.0009' }, '--json'),
    ]);
    t.strictSame([call.code, call.out], [4, '']);
    t.match(
      call.err,
      /^This speech may cost 0\.000198 USD, but .* of 0\.000197 USD for one call .* --max .*You were not charged for this speech\.$/m,
    );
    const { code, exit, scope, limitMicroUsd, leftMicroUsd } = failed(day);
    t.strictSame([code, exit, scope, limitMicroUsd, leftMicroUsd], ['OVER_CAP', 4, 'day', 900, 900 - 4 * HELLO_PRICE]);
    t.match(failed(day).message, /for today \(UTC\) is left: 0\.000792 USD is spent\. Raise .* --max-per-day\./);
    t.equal(await balance('prepaid'), before);
  });

  await t.test('exit 5: Ctrl-C saves the purchase, and resume fetches it once', async () => {
    const out = join(folder, 'interrupted.mp3');
    const db = openDatabase(url, { maxConnections: 1 });
    t.teardown(() => db.destroy());
    const arrived = async () => (await db.selectFrom('x402_payment').select('id').execute()).length;
    const before = await arrived();
    const child = startChild(t, 'src/speechgate.ts', env, ['say', 'Hello again', '--out', out, '--pay', 'x402']);
    await until(async () => (await arrived()) > before);
    assert.equal(await child.stop('SIGINT'), 5, child.output());
    const [, identifier = ''] = /speechgate resume (\S+)$/m.exec(child.output()) ?? [];
    assert.match(child.output(), new RegExp(`^The outcome of the purchase ${identifier} is unknown`, 'm'));
    const shown = await callerCommand({ ...env, SPEECHGATE_MAX_TOTAL: '0.001' }, 'budget');
    assert.match(
      shown.out,
      /^reserved .*may still be charged, those with a signature until \d{4}-.*Z; see speechgate resume/m,
    );
    assert.match(shown.out, /^left +0\.000010 USD can still be spent by card$/m);
    assert.ok(!(await readdir(folder)).includes('interrupted.mp3'), 'no half of it');

    await writeFile(out, 'later speech');
    const kept = await callerCommand(env, 'resume');
    assert.equal(kept.code, 1);
    assert.match(
      kept.out,
      new RegExp(`interrupted\\.mp3 was written after .*speechgate resume ${identifier} --out FILE$`, 'm'),
    );
    assert.equal(await readFile(out, 'utf8'), 'later speech', 'paid audio of another purchase is not replaced');
    await rm(out);

    const resumed = told(await callerCommand(env, 'resume', identifier, '--json')).purchases;
    assert.deepEqual([resumed.length, resumed[0].outcome, resumed[0].file], [1, 'bought', out]);
    assert.ok(isMp3(await readFile(out)));
    const [again, budget, none] = await Promise.all([
      callerCommand(env, 'resume', identifier),
      callerCommand(env, 'budget', '--json'),
      callerCommand(env, 'resume'),
    ]);
    assert.match(again.err, new RegExp(`^ID ${identifier} is not a purchase that is saved on this machine\\.`));
    assert.equal(again.code, 2);
    assert.deepEqual([told(budget).reservedMicroUsd, told(budget).spentMicroUsd], [0, 5 * HELLO_PRICE]);
    assert.deepEqual([none.code, none.out], [0, 'There are no purchases to resume.\n']);
  });

  await t.test('top-up prints where to pay, waits for the credit and stores the account', async (t) => {
    const other = { SPEECHGATE_CONFIG_DIR: join(folder, 'buyer') };
    t.equal((await callerCommand(other, 'connect', baseUrl)).code, 0);
    const topUp = startCallerCommand(other, ['top-up', '--amount', '7']);
    const [, page = ''] = await topUp.printed(/^Pay 7\.000000 USD at (http\S+)$/m);
    await topUp.printed(/^Waiting for the payment .* …$/m);
    t.equal(
      (await fetch(page, { method: 'POST', body: new URLSearchParams({ card: 'accepted' }), redirect: 'manual' }))
        .status,
      303,
    );
    const { code, output } = await topUp.ended;
    t.equal(code, 0, output);
    t.match(output, /^7\.000000 USD credited; the account [0-9a-f]{8}… has 7\.000000 USD\.$/m);
    t.equal(told(await say(other, '--json', '--durable')).receipt.balanceMicroUsd, 7_000_000 - HELLO_PRICE);
  });

  await t.test('top-up resumes earlier purchases and keeps all their accounts', async (t) => {
    const settings = join(folder, 'twice');
    const twice = { SPEECHGATE_CONFIG_DIR: settings, SPEECHGATE_URL: baseUrl };
    const topUp = async (usd: string) =>
      told(await callerCommand(twice, 'top-up', '--amount', usd, '--no-wait', '--json'));
    const pages = [(await topUp('5')).checkoutUrl, (await topUp('10')).checkoutUrl];
    for (const page of pages)
      await fetch(page, { method: 'POST', body: new URLSearchParams({ card: 'accepted' }), redirect: 'manual' });
    const stored = async () => JSON.parse(await readFile(join(settings, 'config.json'), 'utf8'));
    const longAgo = (await stored()).topUps[baseUrl].map((each: object) => ({ ...each, openedAt: 1 }));
    await changeConfig(settings, () => ({ topUps: { [baseUrl]: longAgo } }));
    t.strictSame([(await topUp('10')).amountCents, (await topUp('10')).amountCents], [500, 1000]);
    const { accounts, formerAccounts, topUps } = await stored();
    const of = ({ [baseUrl]: mine }: Record<string, unknown>) => mine;
    t.match(String(of(accounts)), /^[0-9a-f-]{36}$/);
    t.strictSame([(of(formerAccounts) as string[]).length, of(topUps)], [1, []]);
  });

  await t.test(
    'an error about paid audio that cannot be written states the charge',
    { skip: process.platform !== 'linux' && "a disk that is always full is Linux's" },
    async (t) => {
      const buyer = { SPEECHGATE_CONFIG_DIR: join(folder, 'buyer') };
      const error = failed(await callerCommand(buyer, 'say', 'Hello world', '--out', '/dev/full', '--json'));
      t.strictSame([error.code, error.exit, error.chargedMicroUsd], ['AUDIO_LOST', 1, HELLO_PRICE]);
      t.match(error.message, /could not be written to its file: ENOSPC.* You were charged/);
    },
  );

  await t.test('exit 1: an unreachable service and an untrusted service are errors', async (t) => {
    const stranger = generateKeyPairSync('ec', { namedCurve: 'P-256' }).publicKey.export({ format: 'jwk' });
    const wrong = JSON.stringify([{ keyId: 'stranger', publicKeyJwk: stranger }]);
    const [away, untrusted, sent] = await Promise.all([
      callerCommand({ ...env, SPEECHGATE_URL: NOBODY }, 'models', '--json'),
      say({ ...env, SPEECHGATE_TRUST: wrong }, '--pay', 'x402', '--json'),
      callerCommand(env, 'feedback', 'send', 'It works.', '--json'),
    ]);
    t.strictSame([failed(away).code, failed(away).exit], ['UNREACHABLE', 1]);
    t.match(
      failed(away).message,
      /^No service responds at http:\S+ Start the service\. If it is a sandbox, run npx --no -- speechgate /,
    );
    t.strictSame(
      [failed(untrusted).code, failed(untrusted).reason, failed(untrusted).exit],
      ['UNTRUSTED', 'wrong_key', 1],
    );
    t.match(told(sent).feedbackId, /^[0-9a-f-]{36}$/);
  });

  await t.test('exit 2: an invalid option is named with its fix and costs nothing', async (t) => {
    const before = await balance('card');
    const bare = join(folder, 'bare');
    await mkdir(bare);
    await writeFile(join(bare, 'mpg123'), '');
    const wrong: readonly (readonly [args: readonly string[], fault: RegExp, env?: Record<string, string>])[] = [
      [['say', 'x'], /^--out is missing/],
      [
        ['say', 'x', '--out', join(folder, 'no', 'x.mp3')],
        /^--out \S+ is not writable \(there is no such folder\).* Nothing was bought\.$/m,
      ],
      [['say', 'x', '--play'], /^--play found no audio player\. Install /, { PATH: bare }],
      [
        ['say', 'x', '--out', '-', '--voice', 'shimmr'],
        / has no voice shimmr\. Did you mean shimmer\? Nothing was bought\.$/,
      ],
      [['voices', '--model', 'nothing'], /^There is no model nothing\. speechgate models lists the models\./],
      [['say', 'x', '--out', '-', '--pay', 'cash'], /^--pay must be one of card, x402, prepaid, not cash\.$/],
      [['deposit', '0.01'], /^AMOUNT must be from 0\.100000 to 100\.000000 USD, not 0\.01\. Nothing was signed\.$/],
      [['connect', 'ftp://speech.example'], /^URL must be an http or https URL without a path/],
    ];
    const runs = await Promise.all(wrong.map(([args, , extra]) => callerCommand({ ...env, ...extra }, ...args)));
    for (const [at, [args, fault]] of wrong.entries()) {
      const { code, out, err } = runs[at] as CommandRun;
      t.strictSame([code, out], [2, ''], `${args.join(' ')}: ${err}`);
      // Beside the caps, and what is waited for, where that takes over a second.
      const isFault = (text: string) => text !== '' && !text.endsWith(' …') && !/^Caps: |^There is no cap: /.test(text);
      const [line = '', ...more] = err.split('\n').filter(isFault);
      t.match(line, fault);
      // The service's refusals have no usage line.
      const usage = more.filter((text) => text.startsWith(`Usage: speechgate ${args[0]}`));
      t.strictSame(more, usage);
      t.ok(usage.length <= 1);
    }
    t.equal(await balance('card'), before);
  });
});
