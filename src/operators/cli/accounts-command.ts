import { endWith } from '../../lib/arguments.ts';
import { tableLine } from '../../lib/printable.ts';

/** Each reads the arguments after its name from process.argv, and sets the exit code. */
const actions: Readonly<Record<string, { readonly about: string; readonly run: () => Promise<unknown> }>> = {
  show: { about: 'shows the balance, debt and history of an account', run: () => import('./accounts/show.ts') },
  find: { about: 'finds the accounts of a buyer, a purchase or a request', run: () => import('./accounts/find.ts') },
  freeze: {
    about: 'stops spending from an account',
    run: async () => (await import('./accounts/change.ts')).freeze(true),
  },
  unfreeze: { about: 'allows spending again', run: async () => (await import('./accounts/change.ts')).freeze(false) },
  adjust: {
    about: 'adds credit to an account, or removes some',
    run: async () => (await import('./accounts/change.ts')).adjust(),
  },
  refund: { about: 'refunds a purchase to its card', run: () => import('./accounts/refund.ts') },
};

const [name = '', ...rest] = process.argv.slice(2);
const action = Object.hasOwn(actions, name) ? actions[name] : undefined;
if (!action) {
  const list = Object.entries(actions).map(([known, { about }]) => `  ${tableLine([12], [known, about])}`);
  endWith(['speechgate accounts ACTION, one of these:', ...list].join('\n'));
}
process.argv = [...process.argv.slice(0, 2), ...rest];
await action.run();
