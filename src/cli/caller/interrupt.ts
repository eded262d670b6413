/** A signal that aborts at Ctrl-C or SIGTERM; the second one ends the process at once, as ever. */
export function interruption(): AbortSignal {
  const controller = new AbortController();
  for (const name of ['SIGINT', 'SIGTERM'] as const) process.once(name, () => controller.abort(new Error(name)));
  return controller.signal;
}
