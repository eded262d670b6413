import { endWith } from './arguments.ts';
import { tableLine } from './table-line.ts';

/** Each runs with what follows its name in process.argv, and sets the exit code. */
const actions: Readonly<Record<string, { readonly about: string; readonly run: () => Promise<unknown> }>> = {
  show: { about: 'what an account has, owes and did', run: () => import('./accounts/show.ts') },
  find: { about: 'the accounts of a buyer, a purchase or a request', run: () => import('./accounts/find.ts') },
  freeze: { about: 'lets nothing be spent from an account', run: () => import('./accounts/freeze.ts') },
  unfreeze: { about: 'ends that', run: () => import('./accounts/unfreeze.ts') },
  adjust: { about: 'gives an account credit, or takes some', run: () => import('./accounts/adjust.ts') },
  refund: { about: 'pays a purchase back to its card', run: () => import('./accounts/refund.ts') },
};

const list = Object.entries(actions).map(([name, { about }]) => `  ${tableLine([12], [name, about])}`);
const USAGE = ['speechgate accounts ACTION, one of these:', ...list].join('\n');

const [name = '', ...rest] = process.argv.slice(2);
const action = Object.hasOwn(actions, name) ? actions[name] : undefined;
if (!action) endWith(USAGE);
process.argv = [...process.argv.slice(0, 2), ...rest];
await action.run();
