/**
 * The parts of src, from the top to the bottom. A part may import those below it and none above it, not even a type;
 * parts of one line don't import each other. A file belongs to the part with the longest path that it starts with.
 */
const LAYERS = [
  ['main', 'speechgate'],
  ['gateway'],
  ['primary', 'callers/cli', 'operators/cli'],
  ['callers/bridge', 'callers/mcp', 'sandbox'],
  ['callers/budget'],
  ['callers/client'],
  ['app'],
  ['operators'],
  ['features'],
  ['http/routes', 'http/admin', 'reconcile'],
  ['http'],
  ['jobs', 'feedback'],
  ['payments'],
  ['payments/top-up'],
  ['payments/x402'],
  ['payments/refusal'],
  ['payments/limits', 'speech'],
  ['ledger'],
  ['db', 'contract', 'http/pages'],
  ['observability'],
  ['config'],
  ['lib'],
];

const PARTS = LAYERS.flat();

/** Paths of the files of parts, without those of parts within them. */
const pathsOf = (names) => names.map((name) => `^src/${name}(/|\\.ts$)`);
const within = (names) =>
  PARTS.filter((part) => !names.includes(part) && names.some((name) => part.startsWith(`${name}/`)));
const filesOf = (names) => ({ path: pathsOf(names), pathNot: pathsOf(within(names)) });

const upwards = LAYERS.slice(1).map((layer, index) => ({
  name: `${layer.join('-').replaceAll('/', '-')}-imports-nothing-above`,
  severity: 'error',
  from: filesOf(layer),
  to: filesOf(LAYERS.slice(0, index + 1).flat()),
}));

const sideways = LAYERS.flatMap((layer) =>
  layer.length === 1
    ? []
    : layer.map((name) => ({
        name: `${name.replaceAll('/', '-')}-imports-nothing-beside`,
        severity: 'error',
        from: filesOf([name]),
        to: filesOf(layer.filter((other) => other !== name)),
      })),
);

module.exports = {
  forbidden: [
    ...upwards,
    ...sideways,
    {
      name: 'sandbox-is-imported-by-nothing',
      comment:
        'Production never starts a sandbox part. One command starts it, others read where a running one keeps its data.',
      severity: 'error',
      from: {
        pathNot: '^src/(sandbox/|(speechgate|operators/cli/command|callers/cli/connect-command)\\.ts$)',
      },
      to: { path: '^src/sandbox/' },
    },
    {
      name: 'client-runs-in-browsers',
      comment:
        'It imports the types of the contract, and pieces that are pure; no part of the service, and nothing of Node.',
      severity: 'error',
      from: { path: '^src/callers/client/' },
      to: {
        pathNot: [
          '^src/callers/client/',
          '^src/contract/types\\.ts$',
          '^src/lib/(bytes|canonical-json|canonical-query|loopback|money|service-words)\\.ts$',
          '^src/feedback/signing-message\\.ts$',
          '^src/speech/(audio-end|mpeg-frame|price|whole-audio)\\.ts$',
          '^src/payments/x402/signed-types\\.ts$',
          'node_modules/',
        ],
      },
    },
    {
      name: 'callers-never-load-undici',
      comment: "On Node 20 its import replaces the agent behind Node's own fetch, by which the client talks.",
      severity: 'error',
      from: { path: '^src/callers/' },
      to: { path: 'node_modules/undici/', reachable: true },
    },
    {
      name: 'every-folder-has-its-place',
      comment: 'A new folder or file of src belongs into LAYERS.',
      severity: 'error',
      from: { path: '^src/', pathNot: pathsOf(PARTS) },
      to: {},
    },
    {
      name: 'only-src-in-production',
      comment: 'What runs imports neither the compiler of the contract, nor tests, nor the benchmark, attacks or soak.',
      severity: 'error',
      from: { path: '^src/' },
      to: { path: '^(codegen|test|lab)/' },
    },
    {
      name: 'no-cycles',
      severity: 'error',
      from: {},
      to: { circular: true, viaOnly: { dependencyTypesNot: ['type-only'] } },
    },
    {
      name: 'not-to-unresolvable',
      severity: 'error',
      from: {},
      to: { couldNotResolve: true },
    },
    {
      name: 'not-to-optional-dependencies',
      comment: 'The sandbox, the bridge and the MCP server only; an installation for operation leaves them out.',
      severity: 'error',
      from: { path: '^src/', pathNot: '^src/(sandbox|callers/bridge|callers/mcp)/|^src/callers/cli/mcp-command\\.ts$' },
      to: { dependencyTypes: ['npm-optional'] },
    },
    {
      name: 'not-to-dev-dependencies',
      comment:
        'The contracts of the local chain are compiled at development time only. The AWS SDK is an optional peer for ' +
        'operators, and installed here for tests.',
      severity: 'error',
      from: { path: '^src/', pathNot: '^src/(sandbox/chain/compile|speech/store/s3-store)\\.ts$' },
      to: { dependencyTypes: ['npm-dev', 'npm-no-pkg', 'npm-unknown'], pathNot: 'node_modules/@types/' },
    },
  ],
  options: {
    doNotFollow: { path: 'node_modules' },
    tsPreCompilationDeps: true,
    tsConfig: { fileName: 'tsconfig.json' },
    enhancedResolveOptions: {
      extensions: ['.ts', '.js', '.json'],
      exportsFields: ['exports'],
      conditionNames: ['import', 'types', 'node'],
    },
  },
};
