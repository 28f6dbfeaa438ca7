// @ts-check
/** What the workers have, and the settings that can be changed at run time. */
import { settingsView } from "./admin_settings.js";
import { setTitle, show } from "./shell.js";
import { h } from "./ui.js";

setTitle("Admin");
show(h("div", { class: "page-head" }, h("h1", {}, "Admin")), settingsView());
