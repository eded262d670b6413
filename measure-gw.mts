import { randomBytes } from 'node:crypto';
import { privateKeyToAccount } from 'viem/accounts';
import { startGateway } from './test/support/gateway.ts';
import { bookDeposit } from './test/support/prepaid.ts';
const t: any = { teardown() {}, after() {}, before() {} };
const g: any = await startGateway(t, { SPEECH_BASE_URL: process.env.UP!, RATE_LIMIT_MAX: '100000000', TOP_UP_RATE_LIMIT_MAX: '100000000', EDGE_RATE_LIMIT_MAX: '100000000', LOG_LEVEL: 'silent', ...(process.env.GWENV ? JSON.parse(process.env.GWENV) : {}) });
const flow = process.env.FLOW!;
const msg: any = { url: g.url };
if (flow === 'card' || flow === 'job') { msg.accounts = []; for (let i = 0; i < 400; i++) msg.accounts.push(await g.fund(500)); }
if (flow === 'prepaid') {
  const key = ('0x' + randomBytes(32).toString('hex')) as any;
  const w = privateKeyToAccount(key);
  await bookDeposit(g.db, w.address.toLowerCase(), 1_000_000_000n);
  msg.key = key;
  const list = await (await fetch(g.url + '/x402/tts', { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{"text":"Hello world"}' })).json();
  msg.probe = list;
}
let cpu = process.cpuUsage();
process.on('message', (m) => {
  if (m === 'cpustart') { cpu = process.cpuUsage(); process.send!('ok'); }
  if (m === 'cpuend') { const c = process.cpuUsage(cpu); process.send!({ cpu: (c.user + c.system) / 1000 }); }
  if (m === 'stop') process.exit(0);
});
process.send!(msg);
