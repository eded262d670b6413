import { EXIT_USAGE } from '../../lib/arguments.ts';
import { nearest } from '../../lib/misspelt.ts';
import { tableLine } from '../../lib/printable.ts';
import type { OperatorCommand } from './command.ts';

const actions: Readonly<Record<string, { readonly about: string; readonly load: () => Promise<OperatorCommand> }>> = {
  show: {
    about: 'shows the balance, debt and history of an account',
    load: async () => (await import('./accounts/show.ts')).showCommand,
  },
  list: {
    about: 'lists accounts by kind, balance, age and state',
    load: async () => (await import('./accounts/list.ts')).listCommand,
  },
  find: {
    about: 'finds the accounts of a buyer, a purchase or a request',
    load: async () => (await import('./accounts/find.ts')).findCommand,
  },
  freeze: {
    about: 'stops spending from an account',
    load: async () => (await import('./accounts/change.ts')).freezeCommand,
  },
  unfreeze: {
    about: 'allows spending from a frozen account again',
    load: async () => (await import('./accounts/change.ts')).unfreezeCommand,
  },
  adjust: {
    about: 'adds credit to an account, or removes some',
    load: async () => (await import('./accounts/change.ts')).adjustCommand,
  },
  refund: {
    about: 'refunds a purchase to its card',
    load: async () => (await import('./accounts/refund.ts')).refundCommand,
  },
  export: {
    about: 'prints everything that is stored about an account or wallet',
    load: async () => (await import('./accounts/personal-data.ts')).exportCommand,
  },
  erase: {
    about: "erases an account's or wallet's personal data, as far as the ledger allows",
    load: async () => (await import('./accounts/personal-data.ts')).eraseCommand,
  },
};

export const accountsCommand: OperatorCommand = async ([name = '', ...args], context) => {
  const action = Object.hasOwn(actions, name) ? actions[name] : undefined;
  if (action) return (await action.load())(args, context);
  const list = Object.entries(actions).map(([known, { about }]) => `  ${tableLine([12], [known, about])}`);
  const meant = nearest(name, Object.keys(actions));
  if (meant) context.console.error(`Did you mean speechgate admin accounts ${meant}?\n`);
  const print = ['--help', '-h'].includes(name) ? context.console.log : context.console.error;
  print(['speechgate admin accounts ACTION, one of these:', ...list].join('\n'));
  return print === context.console.log ? 0 : EXIT_USAGE;
};
