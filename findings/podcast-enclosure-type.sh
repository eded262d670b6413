#!/usr/bin/env bash
# podcast 2.0.1, rss 1.2.2, feed 6.0.0: an episode whose URL ends in a signature or in no file name gets type="false".
#
# Each guesses the type of an enclosure from its URL. podcast and rss look at the end of the text, query and all, and write
# what their look-up returns when it finds nothing: `false`. feed looks at the path and writes what follows the last dot, or
# else the whole path: `audio//tts/jobs/1/audio`, and `image/mp3` for an `enclosure` in the place of `audio`. Podcast apps
# choose episodes by this type. Nothing warns, so give the type: podcast and rss write it, and feed does with `enclosure`.
set -euo pipefail
cd "$(mktemp -d)"
npm init -y > /dev/null
npm install --silent --no-audit --no-fund podcast@2.0.1 rss@1.2.2 feed@6.0.0
cat > run.mjs <<'JS'
import assert from 'node:assert/strict';
import { Feed } from 'feed';
import { Podcast } from 'podcast';
import RSS from 'rss';

const site = 'https://speech.example';
const date = new Date(0);

const typesOf = (url, given = {}) => {
  const podcast = new Podcast({ title: 'News', feedUrl: site, siteUrl: site });
  podcast.addItem({ title: 'One', date, url, enclosure: { url, size: 1, ...given } });
  const rss = new RSS({ title: 'News', feed_url: site, site_url: site });
  rss.item({ title: 'One', date, enclosure: { url, size: 1, ...given } });
  const audio = new Feed({ title: 'News', id: site, link: site, copyright: '' });
  audio.addItem({ title: 'One', link: url, date, audio: url });
  const enclosure = new Feed({ title: 'News', id: site, link: site, copyright: '' });
  enclosure.addItem({ title: 'One', link: url, date, enclosure: { url, length: 1, ...given } });
  const written = [podcast.buildXml(), rss.xml(), audio.rss2(), enclosure.rss2()];
  return written.map((xml) => /<enclosure[^>]* type="([^"]*)"/.exec(xml)[1]);
};

const seen = {
  file: typesOf(`${site}/1.mp3`),
  signed: typesOf(`${site}/1.mp3?sig=abc`),
  path: typesOf(`${site}/tts/jobs/1/audio`),
  given: typesOf(`${site}/tts/jobs/1/audio`, { type: 'audio/mpeg' }),
};
console.log(seen);
assert.deepEqual(seen, {
  file: ['audio/mpeg', 'audio/mpeg', 'audio/mp3', 'image/mp3'],
  signed: ['false', 'false', 'audio/mp3', 'image/mp3'],
  path: ['false', 'false', 'audio//tts/jobs/1/audio', 'image//tts/jobs/1/audio'],
  given: ['audio/mpeg', 'audio/mpeg', 'audio//tts/jobs/1/audio', 'audio/mpeg'],
});
JS
node run.mjs
