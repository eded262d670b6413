import { test } from 'tap';
import { runAgainstLies } from './hostile-rounds.ts';

test('client, bridge and MCP server survive the random lies of a service', (t) => runAgainstLies(t, 100));
