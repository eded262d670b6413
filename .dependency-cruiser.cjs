/** The direction of imports: each layer may use the ones named after it, never the reverse. */
module.exports = {
  forbidden: [
    {
      name: 'no-cycles',
      severity: 'error',
      from: {},
      to: { circular: true, viaOnly: { dependencyTypesNot: ['type-only'] } },
    },
    {
      name: 'sandbox-is-imported-by-nothing',
      comment: 'Production never starts a sandbox part. Commands may read where a running one keeps its data.',
      severity: 'error',
      from: { pathNot: '^src/(sandbox/|cli/settings\\.ts$)' },
      to: { path: '^src/sandbox/' },
    },
    {
      name: 'operations-are-composed-only',
      comment: 'Operations translate between the contract and the parts below; only app.ts knows them.',
      severity: 'error',
      from: { pathNot: '^src/(operations/|app\\.ts$)' },
      to: { path: '^src/operations/' },
    },
    {
      name: 'the-edge-knows-no-money-and-no-speech',
      severity: 'error',
      from: { path: '^src/http/' },
      to: { path: '^src/(operations|payments|jobs|top-up|feedback|speech|x402|ledger|audio|sandbox)/' },
    },
    {
      name: 'parts-below-know-nothing-above',
      comment: 'speech, x402, ledger, audio, limits and queue are used by payments, jobs, top-up and feedback.',
      severity: 'error',
      from: { path: '^src/(speech|x402|ledger|audio|limits|queue)/' },
      to: { path: '^src/(operations|payments|jobs|top-up|feedback|admin)/' },
    },
    {
      name: 'the-ledger-knows-only-the-database',
      severity: 'error',
      from: { path: '^src/ledger/' },
      to: { path: '^src/(?!ledger/|db/|uuid\\.ts$)' },
    },
    {
      name: 'not-to-unresolvable',
      severity: 'error',
      from: {},
      to: { couldNotResolve: true },
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
