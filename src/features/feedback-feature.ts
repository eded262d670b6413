import type { FeedbackOperations } from '../contract/operations.ts';
import { createChallengeSigner } from '../feedback/challenge-token.ts';
import { MailWorker } from '../feedback/mail-worker.ts';
import type { OperationContext } from '../http/operation-context.ts';
import { feedbackOperations } from '../operations/feedback-operations.ts';
import { feedbackReconcilers } from '../reconcile/reconcilers.ts';
import type { Feature, SharedParts } from './feature.ts';

export interface Feedback extends Feature {
  readonly operations: { readonly feedback: FeedbackOperations<OperationContext> };
  /** Mails feedback once it is started; undefined where mail is not set up. */
  readonly mailer: MailWorker | undefined;
}

/** Feedback that wallets sign, and its mail. */
export function openFeedback({ config, db, log }: SharedParts): Feedback {
  const { databaseUrl, namedStatements, serviceName, baseUrl } = config;
  const mail = config.feedback?.mail;
  const feedback = config.feedback && {
    signer: createChallengeSigner(config.feedback.secrets),
    challengeTtlSeconds: config.feedback.challengeTtlSeconds,
    maxPerHour: config.feedback.maxPerHour,
    notification: mail ? ('queued' as const) : ('not_configured' as const),
  };
  const mailer = mail && new MailWorker({ ...mail, db, databaseUrl, namedStatements, serviceName, log });
  if (!feedback) log.warn('feedback is off: FEEDBACK_SECRET is unset, its endpoints answer 503');
  else if (!mailer) log.warn('feedback is stored, but not mailed: SMTP_URL is unset');
  return {
    operations: { feedback: feedbackOperations({ db, serviceName, baseUrl, feedback }) },
    mailer,
    reconcilers: feedbackReconcilers(db, config.feedback),
    end: async () => mailer?.stop(),
  };
}
