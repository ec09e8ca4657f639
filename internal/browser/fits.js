// Returns what of the page cannot be seen at this width: what sticks out of the page, and
// what a box without a scroll bar of its own cuts off.
const root = document.documentElement, bad = [];
if (root.scrollWidth > innerWidth) bad.push(`the page is ${root.scrollWidth} px wide in ${innerWidth}`);
for (const e of document.body.querySelectorAll('*')) {
  if (!e.checkVisibility() || e.closest('.hidden')) continue;
  const name = e.tagName.toLowerCase() + (e.id ? '#' + e.id : '') + ` “${e.textContent.trim().slice(0, 30)}”`;
  const box = e.getBoundingClientRect();
  let scrolls = false;
  for (let p = e; p && p !== document.body; p = p.parentElement) scrolls ||= ['auto', 'scroll'].includes(getComputedStyle(p).overflowX);
  if (!scrolls && box.width > 0 && (box.left < -1 || box.right > innerWidth + 1)) bad.push(`${name} from ${Math.round(box.left)} to ${Math.round(box.right)}`);
  const hides = ['hidden', 'clip'].includes(getComputedStyle(e).overflowX);
  if (hides && e.scrollWidth > e.clientWidth + 1) bad.push(`${name} hides ${e.scrollWidth - e.clientWidth} px`);
  if (e instanceof SVGTextContentElement) {
    const picture = e.ownerSVGElement.getBoundingClientRect();
    if (box.left < picture.left - 1 || box.right > picture.right + 1 || box.top < picture.top - 1 || box.bottom > picture.bottom + 1) bad.push(`${name} sticks out of its picture`);
  }
}
return bad;
