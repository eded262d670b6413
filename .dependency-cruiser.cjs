/**
 * The folders of src, from the top to the bottom. Each may import those below it and none above it, not even a type;
 * folders of one line don't import each other.
 */
const LAYERS = [
  ['main', 'cli'],
  ['bridge', 'mcp'],
  ['process'],
  ['sandbox'],
  ['budget'],
  ['client'],
  ['app'],
  ['features'],
  ['operations', 'reconcile', 'audit', 'report', 'doctor', 'admin', 'telemetry'],
  ['settings'],
  ['jobs', 'top-up', 'feedback', 'http'],
  ['payments'],
  ['x402'],
  ['limits', 'audio', 'speech', 'operators'],
  ['ledger'],
  ['queue'],
  ['db', 'pages', 'contract', 'crypto'],
  ['observability'],
  ['lib'],
];

/** The path of a folder's files, or of the file of that name in src itself. */
const pathOf = (names) => `^src/(${names.join('|')})(/|\\.ts$)`;

const upwards = LAYERS.slice(1).map((layer, index) => ({
  name: `${layer.join('-')}-imports-nothing-above`,
  severity: 'error',
  from: { path: pathOf(layer) },
  to: { path: pathOf(LAYERS.slice(0, index + 1).flat()) },
}));

const sideways = LAYERS.flatMap((layer) =>
  layer.map((name) => ({
    name: `${name}-imports-nothing-beside`,
    severity: 'error',
    from: { path: pathOf([name]) },
    to: { path: pathOf(layer.filter((other) => other !== name)) },
  })),
).filter(({ to }) => !to.path.includes('()'));

module.exports = {
  forbidden: [
    ...upwards,
    ...sideways,
    {
      name: 'sandbox-is-imported-by-nothing',
      comment: 'Production never starts a sandbox part. Commands may read where a running one keeps its data.',
      severity: 'error',
      from: { pathNot: '^src/(sandbox/|cli/(command-settings|caller/sandbox-parts)\\.ts$)' },
      to: { path: '^src/sandbox/' },
    },
    {
      name: 'client-runs-in-browsers',
      comment:
        'It imports the types of the contract, and pieces that are pure; no part of the service, and nothing of Node.',
      severity: 'error',
      from: { path: '^src/client/' },
      to: {
        pathNot: [
          '^src/client/',
          '^src/contract/types\\.ts$',
          '^src/lib/(canonical-json|loopback|service-words|unprintable)\\.ts$',
          '^src/feedback/signing-message\\.ts$',
          '^src/speech/price\\.ts$',
          '^src/x402/(canonical-query|prepaid-types)\\.ts$',
          'node_modules/',
        ],
      },
    },
    {
      name: 'every-folder-has-its-place',
      comment: 'A new folder or file of src belongs into LAYERS.',
      severity: 'error',
      from: { path: '^src/', pathNot: pathOf(LAYERS.flat()) },
      to: {},
    },
    {
      name: 'only-src-in-production',
      comment: 'What runs imports neither the compiler of the contract, nor tests, nor the benchmark, attacks or soak.',
      severity: 'error',
      from: { path: '^src/' },
      to: { path: '^(codegen|test|bench|attacks|soak)/' },
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
      from: { path: '^src/', pathNot: '^src/(sandbox|bridge|mcp)/|^src/cli/caller/mcp-command\\.ts$' },
      to: { dependencyTypes: ['npm-optional'] },
    },
    {
      name: 'not-to-dev-dependencies',
      comment: 'The contracts of the local chain are compiled at development time only.',
      severity: 'error',
      from: { path: '^src/', pathNot: '^src/sandbox/chain/compile\\.ts$' },
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
