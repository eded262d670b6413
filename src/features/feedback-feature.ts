import type { FastifyInstance } from 'fastify';
import { feedbackRoutes } from '../contract/routes.ts';
import { createChallengeSigner } from '../feedback/challenge-token.ts';
import { mailWorker } from '../feedback/deliver.ts';
import { operations } from '../http/operations.ts';
import { feedbackOperations } from '../http/routes/feedback-operations.ts';
import { feedbackReconcilers } from '../reconcile/reconcilers.ts';
import type { SharedParts } from './feature.ts';

/** Feedback is stored, and mailed if SMTP is set up (R38). */
export function openFeedback({ config, db, metrics, log }: SharedParts) {
  const { databaseUrl, namedStatements, serviceName, baseUrl } = config;
  const mail = config.feedback?.mail;
  const feedback = config.feedback && {
    signer: createChallengeSigner(config.feedback.secrets),
    challengeTtlSeconds: config.feedback.challengeTtlSeconds,
    maxPerHour: config.feedback.maxPerHour,
    notification: mail ? ('queued' as const) : ('not_configured' as const),
  };
  const mailer =
    mail && mailWorker(db, { ...mail, serviceName }, { databaseUrl, namedStatements, log }, metrics.outside('mail'));
  if (!feedback) log.warn('feedback is off, because FEEDBACK_SECRET is not set. Set it to turn feedback on');
  else if (!mailer) log.warn('feedback is not mailed. Set SMTP_URL, FEEDBACK_FROM and FEEDBACK_TO to get mail');
  const routes = feedbackRoutes(feedbackOperations({ db, serviceName, baseUrl, feedback }));
  return {
    plugin: async (server: FastifyInstance) => void server.register(operations, { routes }),
    mailer,
    reconcilers: feedbackReconcilers(db, config.feedback),
    end: async () => mailer?.stop(),
  };
}
