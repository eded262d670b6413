import { NO_WHOLE_NUMBER, type Settings } from './setting.ts';

/** Of proxies, rate limits and connections. */
export const EDGE_SETTINGS: Settings = {
  TRUST_PROXY: {
    read: (config) => config.trustProxy,
    absent: [],
    accepted: {
      '10.0.0.0/8, 192.0.2.7,': ['10.0.0.0/8', '192.0.2.7'],
      '2001:db8::/128,::1': ['2001:db8::/128', '::1'],
    },
    refused: [
      '0.0.0.0/0',
      '::/0',
      '1',
      'true',
      'proxy.example',
      '10.0.0.0/33',
      '::1/129',
      '10.0.0.0/8/8',
      '10.0.0.0/',
      '10.0.0.1,no',
    ],
  },
  RATE_LIMIT_MAX: {
    read: (config) => config.rateLimit.max,
    absent: 30,
    accepted: { '1': 1, '1000000000': 1_000_000_000 },
    refused: ['0', '1000000001', ...NO_WHOLE_NUMBER],
  },
  RATE_LIMIT_WINDOW_SECONDS: {
    read: (config) => config.rateLimit.windowSeconds,
    absent: 60,
    accepted: { '1': 1, '86400': 86_400 },
    refused: ['0', '86401', ...NO_WHOLE_NUMBER],
  },
  EDGE_RATE_LIMIT_MAX: {
    read: (config) => config.edgeRateLimitMax,
    absent: 600,
    accepted: { '1': 1, '1000000000': 1_000_000_000 },
    refused: ['0', '1000000001', ...NO_WHOLE_NUMBER],
  },
  MAX_CONNECTIONS: {
    read: (config) => config.maxConnections,
    absent: 10_000,
    accepted: { '1': 1, '1000000': 1_000_000 },
    refused: ['0', '1000001', ...NO_WHOLE_NUMBER],
  },
  STOP_DRAIN_MS: {
    read: (config) => config.stopDrainMs,
    absent: 0,
    accepted: { '0': 0, '600000': 600_000 },
    refused: ['600001', ...NO_WHOLE_NUMBER],
  },
};
