import { buildRequests, type Plan } from '../../bench/load/requests.ts';
import { challengeIn, takeSample } from '../../bench/targets/sample.ts';
import { TEXT } from '../../bench/world.ts';

export interface CostFlow {
  readonly status: number;
  /** So many requests, each of another payer where one is named. @param port of the gateway */
  requests(port: number, count: number): Promise<Buffer[]>;
}

const body = JSON.stringify({ text: TEXT });
const at = (path: string): Omit<Plan, 'payment'> => ({ path, body, headers: {} });
const repeated = (request: Buffer, count: number): Buffer[] => Array(count).fill(request);

/** The kinds of request whose costs are recorded. */
export const FLOWS: Readonly<Record<string, CostFlow>> = {
  models: {
    status: 200,
    requests: async (_port, count) =>
      repeated(Buffer.from('GET /tts/models HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n'), count),
  },
  challenge: {
    status: 402,
    requests: async (_port, count) => {
      const [request] = buildRequests({ ...at('/x402/tts'), payment: { by: 'nothing' } }, 1);
      return repeated(request as Buffer, count);
    },
  },
  card: {
    status: 200,
    requests: async (_port, count) =>
      buildRequests({ ...at('/tts'), payment: { by: 'account' } }, count).slice(0, count),
  },
  prepaid: {
    status: 200,
    requests: async (_port, count) => buildRequests({ ...at('/x402/tts'), payment: { by: 'prepaid' } }, count),
  },
  direct: {
    status: 200,
    requests: async (port, count) => {
      const unpaid: Plan = { ...at('/x402/tts'), payment: { by: 'nothing' } };
      const challenge = challengeIn(await takeSample(port, unpaid));
      return buildRequests({ ...unpaid, payment: { by: 'direct', challenge } }, count);
    },
  },
};
