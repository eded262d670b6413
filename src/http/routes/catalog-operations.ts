import type { Catalog, Model } from '../../config/catalog.ts';
import { SPEED } from '../../config/speech-limits.ts';
import type { CatalogOperations } from '../../contract/operations.ts';
import { findModel, unknownModel } from '../../speech/order.ts';
import type { OperationContext } from '../operation-context.ts';
import { failure } from '../structured-error.ts';

export function catalogOperations(catalog: Catalog): CatalogOperations<OperationContext> {
  const models = {
    success: true as const,
    defaultModel: catalog.defaultModel.id,
    total: catalog.models.length,
    models: catalog.models.map((model) => ({
      id: model.id,
      provider: model.provider,
      name: model.name,
      description: model.description,
      maxInputCharacters: model.maxInputCharacters,
      defaultVoice: model.defaultVoice.id,
      speed: { ...model.speed, default: SPEED.default },
      pricing: pricing(model),
      voices: voices(model),
      available: model.available,
    })),
  };
  return {
    listModels: async () => ({ status: 200, body: models }),

    listVoices: async ({ query }) => {
      const model = findModel(catalog, query.model);
      if (!model) {
        const { code, message, details } = unknownModel(catalog);
        return failure(code, message, details);
      }
      return {
        status: 200,
        body: {
          success: true,
          model: model.id,
          total: model.voices.length,
          pricing: pricing(model),
          available: model.available,
          voices: voices(model),
        },
      };
    },
  };
}

const voices = (model: Model) =>
  model.voices.map((voice) => ({
    id: voice.id,
    provider: model.provider,
    voice: voice.slug,
    model: model.id,
    name: voice.name,
  }));

/** Rates for display, as decimal quotients. Prices are never computed from them (R3). */
const pricing = (model: Model) => ({
  currency: 'USD' as const,
  model: model.id,
  billingUnit: 'character' as const,
  ratePerCharUsd: Number(model.ratePicoUsd) / 1e12,
  ratePerMillionCharsUsd: Number(model.ratePicoUsd) / 1e6,
  maxInputCharacters: model.maxInputCharacters,
});
