// The theme puts tables into boxes that scroll on small screens. The keyboard reaches them.
const reach = () => document.querySelectorAll('.md-typeset__scrollwrap:not([tabindex])').forEach(e => { e.tabIndex = 0 })
new MutationObserver(reach).observe(document.body, { childList: true, subtree: true })
reach()
