import { audioChecks } from './audio-checks.ts';
import { cardChecks } from './card-checks.ts';
import type { Area } from './check.ts';
import { databaseChecks } from './database-checks.ts';
import { diskChecks } from './disk-checks.ts';
import { facilitatorChecks } from './facilitator-checks.ts';
import { keyChecks } from './key-checks.ts';
import { KnownDatabase } from './known-database.ts';
import { mailChecks } from './mail-checks.ts';
import { nodeChecks } from './node-checks.ts';
import type { Patient } from './patient.ts';
import { publicChecks } from './public-checks.ts';
import { schemaChecks } from './schema-checks.ts';
import { secretChecks } from './secret-checks.ts';
import { settingsChecks } from './settings-checks.ts';
import { speechChecks } from './speech-checks.ts';

/** Every check of the configuration against its live parts, in the order in which they are told. To be closed. */
export async function allChecks(patient: Patient): Promise<Required<Area>> {
  const { config } = patient;
  const known = new KnownDatabase(config.databaseUrl);
  const areas: readonly Area[] = [
    settingsChecks(known, patient),
    secretChecks(patient),
    databaseChecks(known, patient),
    schemaChecks(known, config),
    await speechChecks(patient),
    cardChecks(known, config.card),
    facilitatorChecks(config.x402),
    nodeChecks(patient),
    keyChecks(patient),
    mailChecks(patient),
    audioChecks(config.jobs),
    diskChecks(known, config),
    publicChecks(config),
  ];
  return {
    checks: areas.flatMap(({ checks }) => checks),
    close: async () => {
      await Promise.allSettled(areas.map((area) => area.close?.()));
      await known.close();
    },
  };
}
