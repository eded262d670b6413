/** The environment for third-party programs: without the caller's settings, some of which are secrets. */
export const childEnv = (env: NodeJS.ProcessEnv = process.env): NodeJS.ProcessEnv =>
  Object.fromEntries(Object.entries(env).filter(([name]) => !name.toUpperCase().startsWith('SPEECHGATE_')));
