import { NO_WHOLE_NUMBER, type Settings } from './setting.ts';

/** Of the operators' listener. */
export const ADMIN_SETTINGS: Settings = {
  ADMIN_PORT: {
    read: (config) => config.adminPort,
    absent: undefined,
    accepted: { '9000': 9000 },
    refused: ['0', '65536', ...NO_WHOLE_NUMBER],
  },
  ADMIN_HOST: {
    read: (config) => config.admin,
    absent: { host: '127.0.0.1', names: [] },
    accepted: {
      '0.0.0.0': { host: '0.0.0.0', names: [] },
      '::': { host: '::', names: [] },
      'Admin.internal': { host: 'admin.internal', names: ['admin.internal'] },
      '10.0.0.7, metrics.internal,Ops': { host: '10.0.0.7', names: ['metrics.internal', 'ops'] },
      ',': { host: '127.0.0.1', names: [] },
    },
    refused: [
      '*',
      '127.0.0.1:9000',
      '[::1]',
      'http://127.0.0.1',
      '127.0.0.1,*.internal',
      '127.0.0.1,10.0.0.8',
      '300.1.1.1',
    ],
  },
};
