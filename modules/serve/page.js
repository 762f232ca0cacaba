'use strict'
const home = document.getElementById('parts')
const say = text => { const e = document.getElementById('said'); if (e && e.textContent !== text) e.textContent = text }
// shown has each part as the device sent it: what a person opened in it is no change.
const shown = new Map()
const parts = from => from.querySelectorAll('[id^="part-"]')
for (const part of parts(document)) shown.set(part.id, part.outerHTML)

async function read(path) {
  const answer = await fetch(path, { cache: 'no-store' })
  const text = await answer.text()
  if (!answer.ok) throw Error(JSON.parse(text).error)
  return new DOMParser().parseFromString(text, 'text/html')
}

// put replaces a part. What was open stays open, and the focus stays where it was.
function put(old, part) {
  const open = [...old.querySelectorAll('details[open]')].map(e => e.id)
  const at = old.contains(document.activeElement) && document.activeElement
  const held = at && (at.id || at.closest('[id]').id), inner = at && at.localName
  old.replaceWith(part)
  for (const id of open) { const e = document.getElementById(id); if (e) e.open = true }
  if (!held) return
  const around = document.getElementById(held)
  if (around) (around.localName === inner ? around : around.querySelector(inner) || around).focus({ preventScroll: true })
}

let working = false, again = false
async function show() {
  if (working) { again = true; return }
  working = true
  try {
    const page = await read('/')
    const now = [...parts(page)], texts = now.map(e => e.outerHTML)
    const whole = now.map(e => e.id).join() !== [...parts(document)].map(e => e.id).join()
    if (whole) {
      put(document.querySelector('dl'), page.querySelector('dl'))
      put(document.getElementById('parts'), page.getElementById('parts'))
    }
    now.forEach((part, i) => {
      if (!whole && shown.get(part.id) !== texts[i]) put(document.getElementById(part.id), part)
      shown.set(part.id, texts[i])
    })
    document.title = page.title
    say(page.getElementById('said').textContent)
  } catch (err) { say('The device does not answer: ' + err.message) }
  working = false
  if (again) { again = false; show() }
}

// What a link leads to is shown in place.
document.addEventListener('toggle', async e => {
  const link = e.target.open && e.target.querySelector('a.more')
  if (!link) return
  try {
    const text = (await read(link.href)).querySelector('pre')
    if (link.isConnected) link.parentNode.replaceWith(text)
  } catch (err) { link.textContent = err.message }
}, true)

if (home) {
  const events = new EventSource('/v1/events')
  events.onopen = events.onmessage = show
  events.onerror = () => say('The device does not answer. This page goes on when it does.')
  setInterval(() => { if (!document.hidden) show() }, 15000) // a service that ends is no event
}
