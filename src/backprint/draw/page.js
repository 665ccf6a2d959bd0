/* Built from page/ by "make page"; edit the sources there.

d3-color 3.1.1: Copyright 2010-2026 Mike Bostock
d3-dispatch 3.0.2: Copyright 2010-2026 Mike Bostock
d3-drag 3.0.1: Copyright 2010-2026 Mike Bostock
d3-interpolate 3.0.2: Copyright 2010-2026 Mike Bostock
d3-selection 3.0.1: Copyright 2010-2026 Mike Bostock
d3-timer 3.0.2: Copyright 2010-2026 Mike Bostock
d3-transition 3.0.2: Copyright 2010-2026 Mike Bostock
d3-zoom 3.0.1: Copyright 2010-2026 Mike Bostock

Permission to use, copy, modify, and/or distribute this software for any purpose
with or without fee is hereby granted, provided that the above copyright notice
and this permission notice appear in all copies.

THE SOFTWARE IS PROVIDED "AS IS" AND THE AUTHOR DISCLAIMS ALL WARRANTIES WITH
REGARD TO THIS SOFTWARE INCLUDING ALL IMPLIED WARRANTIES OF MERCHANTABILITY AND
FITNESS. IN NO EVENT SHALL THE AUTHOR BE LIABLE FOR ANY SPECIAL, DIRECT,
INDIRECT, OR CONSEQUENTIAL DAMAGES OR ANY DAMAGES WHATSOEVER RESULTING FROM LOSS
OF USE, DATA OR PROFITS, WHETHER IN AN ACTION OF CONTRACT, NEGLIGENCE OR OTHER
TORTIOUS ACTION, ARISING OUT OF OR IN CONNECTION WITH THE USE OR PERFORMANCE OF
THIS SOFTWARE.


d3-ease 3.0.2: Copyright 2010-2026 Mike Bostock, Copyright 2001 Robert Penner

All rights reserved.

Redistribution and use in source and binary forms, with or without modification,
are permitted provided that the following conditions are met:

* Redistributions of source code must retain the above copyright notice, this
  list of conditions and the following disclaimer.

* Redistributions in binary form must reproduce the above copyright notice,
  this list of conditions and the following disclaimer in the documentation
  and/or other materials provided with the distribution.

* Neither the name of the author nor the names of contributors may be used to
  endorse or promote products derived from this software without specific prior
  written permission.

THIS SOFTWARE IS PROVIDED BY THE COPYRIGHT HOLDERS AND CONTRIBUTORS "AS IS" AND
ANY EXPRESS OR IMPLIED WARRANTIES, INCLUDING, BUT NOT LIMITED TO, THE IMPLIED
WARRANTIES OF MERCHANTABILITY AND FITNESS FOR A PARTICULAR PURPOSE ARE
DISCLAIMED. IN NO EVENT SHALL THE COPYRIGHT OWNER OR CONTRIBUTORS BE LIABLE FOR
ANY DIRECT, INDIRECT, INCIDENTAL, SPECIAL, EXEMPLARY, OR CONSEQUENTIAL DAMAGES
(INCLUDING, BUT NOT LIMITED TO, PROCUREMENT OF SUBSTITUTE GOODS OR SERVICES;
LOSS OF USE, DATA, OR PROFITS; OR BUSINESS INTERRUPTION) HOWEVER CAUSED AND ON
ANY THEORY OF LIABILITY, WHETHER IN CONTRACT, STRICT LIABILITY, OR TORT
(INCLUDING NEGLIGENCE OR OTHERWISE) ARISING IN ANY WAY OUT OF THE USE OF THIS
SOFTWARE, EVEN IF ADVISED OF THE POSSIBILITY OF SUCH DAMAGE.


preact 11.2.0: Copyright (c) 2015-present Jason Miller

The MIT License (MIT)


Permission is hereby granted, free of charge, to any person obtaining a copy
of this software and associated documentation files (the "Software"), to deal
in the Software without restriction, including without limitation the rights
to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE.
*/
"use strict";(()=>{var I,ni,Po,Lt,Rn,Ge,ri,Fe,ii,Gn,Vn,To,ve=Symbol.for("pv"),We={},He=[],Lo=/^m(i|n|o|s|text|space)$/,Wn=Array.isArray,si=He.slice,Gt=Object.assign;function Vt(e){
e&&e.parentNode&&e.remove()}function Re(e,t,n,r,i){var s={type:e,props:t,key:n,ref:r,__k:null,__:null,__b:0,__e:null,__c:null,constructor:ve,__v:i||++ni,__i:-1,__u:0};return!i&&I.vnode&&I.
vnode(s),s}function at(){return{current:null}}function re(e){return e.children}function W(e,t){this.props=e,this.context=t,this.__g=0}function It(e,t){if(t==null)
return e.__&&It(e.__,e.__i+1);for(var n;t<e.__k.length;t++)if((n=e.__k[t])&&n.__e)return n.__e;return typeof e.type!="function"||e.props.__P?null:It(e)}function Io(e){
var t,n=e.__v,r=n.__e,i=[],s=[],o=e.__P;o&&((t=Gt({constructor:ve},n)).__v=n.__v+1,I.vnode&&I.vnode(t),Hn(o,t,n,e.__n,o.namespaceURI,32&n.__u?[r]:null,i,r||It(n),
32&n.__u,s),t.__v=n.__v,t.__.__k[t.__i]=t,fi(i,t,s),n.__=n.__e=null,t.__e!=r&&oi(t))}function oi(e){if((e=e.__)&&e.__c&&!e.props.__P)return e.__e=null,e.__k.some(
function(t){return t&&(e.__e=t.__e)}),oi(e)}function ti(e){(8&e.__g||(e.__g|=8,Lt.push(e),Ge++))&&Rn==I.debounceRendering||((Rn=I.debounceRendering)||queueMicrotask)(
ai)}function ai(){try{for(var e,t=1;Lt.length;)Lt.length>t&&Lt.sort(ri),e=Lt.shift(),t=Lt.length,8&e.__g&&Io(e)}finally{(Ge=Lt.length)&&(Rn||queueMicrotask)(ai)}}
function ui(e,t,n,r,i,s,o,a,u,l,c){var h,p,d,m,b,v,g=r.__k||He,w=t.length;for(u=Uo(n,t,g,u,w),h=0;h<w;h++)(d=n.__k[h])!=null&&(p=~d.__i&&g[d.__i]||We,d.__i=h,v=
Hn(e,d,p,i,s,o,a,u,l,c),m=d.__e,(p.ref!=d.ref||8&p.__u)&&(p.ref&&qn(p.ref,null,d,p),d.ref&&c.push(d.ref,d.__c||m,d)),b=b||m,4&d.__u?(u=li(d,u,e,!p.__v),p.__e&&(p.
__e=null)):typeof d.type=="function"&&v!==void 0?u=v:m&&(u=m.nextSibling),d.__u&=-21);return n.__e=b,u}function Uo(e,t,n,r,i){var s,o,a,u,l,c,h,p,d,m=n.length,b=m,
v=0,g=0,w=e.__k=Array(i);for(s=0;s<i;s++)(o=t[s])!=null&&typeof o!="boolean"&&typeof o!="function"?(typeof o!="object"||o.constructor===String?o=w[s]=Re(null,o):
Wn(o)?o=w[s]=Re(re,{children:o}):o.constructor===ve&&o.__b?o=w[s]=Re(o.type,o.props,o.key,o.ref,o.__v):w[s]=o,u=s+v,o.__=e,o.__b=e.__b+1,a=null,~(l=o.__i=Do(o,n,
u,b))&&(b--,(a=n[l])&&(a.__u|=2)),a&&a.__v?(o.__u|=16,l==u-1?v--:l==u+1?v++:l!=u&&(l>u?v--:v++,g=1)):(~l||(i>m?v--:i<m&&v++),typeof o.type!="function"&&(o.__u|=
4))):w[s]=null;if(g){for(c=[],h=[],s=0;s<i;s++)if((o=w[s])&&16&o.__u){for(v=0,p=c.length;v<p;)c[d=v+p>>1]<o.__i?v=d+1:p=d;c[v]=o.__i,h[s]=v+1}for(v=c.length;s--;)
h[s]&&(h[s]==v?v--:w[s].__u|=4)}if(b)for(s=0;s<m;s++)!(a=n[s])||2&a.__u||(a.__e==r&&(r=It(a)),Kn(a,a));return r}function li(e,t,n,r){var i,s,o,a;if(typeof e.type==
"function"){if(e.props.__P)return t;if(i=e.__k)for(s=0;s<i.length;s++)i[s]&&(i[s].__=e,t=li(i[s],t,n,!1));return t}for(t&&!t.parentNode&&(t=It(e))&&!t.parentNode&&
(t=null),o=e.__e,a=t;a&&a.nodeType==8;)a=a.nextSibling;for(o!=a&&(!r&&n.moveBefore&&o.parentNode?n.moveBefore(o,t):n.insertBefore(o,t||null)),t=o;(t=t&&t.nextSibling)&&
t.nodeType==8&&!t.data.startsWith("$s"););return t}function Do(e,t,n,r){var i,s=e.key,o=e.type,a=t[n],u=a&&!(2&a.__u);if(a===null&&s==null||u&&s==a.key&&o==a.type)return n;if(r>(u?1:0)){for(i=n-1;i>=0;i--)if((a=
t[i])&&!(2&a.__u)&&s==a.key&&o==a.type)return i;for(i=n+1;i<t.length;i++)if((a=t[i])&&!(2&a.__u)&&s==a.key&&o==a.type)return i}return-1}function ei(e,t,n){n==null&&
(n=""),t[0]=="-"?e.setProperty(t,n):e[t]=n}function ze(e,t,n,r,i){var s,o;if(t=="style")if(typeof n=="string")e.style.cssText=n;else{if(typeof r=="string"&&(e.style.
cssText=r=""),r)for(t in r)n&&t in n||ei(e.style,t);if(n)for(t in n)r&&n[t]==r[t]||ei(e.style,t,n[t])}else if(t[0]=="o"&&t[1]=="n")typeof n!="function"&&(n=null),
typeof r!="function"&&(r=null),(e.__e||(e.__e={}))[t]=n,n&&r||(o=Vn[t]||(Vn[t]=Bo(t)),(e.__a||(e.__a={}))[t]=Gn,s=t!=(t=t.replace(ii,"$1")),(t=t.slice(2))[0]<"a"&&
(t=t.toLowerCase()),n?e.addEventListener(t,o,s):e.removeEventListener(t,o,s));else{if(i=="http://www.w3.org/2000/svg")t=t.replace(/xlink(H|:h)/,"h").replace(/sName$/,
"s");else if(t!="width"&&t!="height"&&t!="href"&&t!="list"&&t!="form"&&t!="tabIndex"&&t!="download"&&t!="rowSpan"&&t!="colSpan"&&t!="role"&&t!="popover"&&t in e)
try{return void(e[t]=n??"")}catch{}if(typeof n=="function")return;n==null||n===!1&&t[4]!="-"?e.removeAttribute(t):e.setAttribute(t,t=="popover"&&n==1?"":n)}}function Bo(e){
return function(t){var n=this.__e;if(n){if(n=n[e],t[Fe]==null)t[Fe]=Gn++;else if(t[Fe]<this.__a[e])return;return n(I.event?I.event(t):t)}}}function Hn(e,t,n,r,i,s,o,a,u,l){
var c,h,p,d,m,b,v,g,w,x,M,L,O,B,Z,rt,V,j,G=t.type;if(t.constructor!==ve)return null;128&n.__u&&(u=32&n.__u,c=n.__c.__z)&&(t.__u|=u,h=s=[],c.nodeType==8?a=Ve(c,s):
s.push(c),a=s[0]||a),(c=I.__b)&&c(t);t:if(typeof G=="function"){p=o.length;try{if(g=t.props,w=(c=G.prototype)&&c.render,x=(c=G.contextType)&&r[c.__c],M=c?x?x.props.
value:c.__:r,(d=n.__c)?(t.__c=d,2&d.__g&&(d.__g|=1)):(w?t.__c=d=new G(g,M):(t.__c=d=new W(g,M),d.constructor=G,d.render=Fo),x&&x.sub(d),d.state||(d.state={}),d.
__n=r,d.__g|=8,d.__h=[],d.__k=[]),w&&(d.__s||(d.__s=d.state),G.getDerivedStateFromProps&&(d.__s==d.state&&(d.__s=Gt({},d.__s)),Gt(d.__s,G.getDerivedStateFromProps(
g,d.__s)))),m=d.props,b=d.state,d.__v=t,n.__c){if(g!==m&&w&&!G.getDerivedStateFromProps&&d.componentWillReceiveProps&&d.componentWillReceiveProps(g,M),t.__v==n.
__v&&!(8&d.__g)||!(4&d.__g)&&d.shouldComponentUpdate&&d.shouldComponentUpdate(g,d.__s,M)===!1){t.__v!=n.__v&&(d.props=g,d.state=d.__s,d.__g&=-9),t.__e=n.__e,t.__k=
n.__k,t.__k.some(function(q){q&&(q.__=t)}),He.push.apply(d.__h,d.__k),d.__k=[],d.__h.length&&o.push(d),a=It(n);break t}d.componentWillUpdate&&d.componentWillUpdate(
g,d.__s,M),w&&d.componentDidUpdate&&d.__h.push(function(){d.componentDidUpdate(m,b,v)})}else w&&!G.getDerivedStateFromProps&&d.componentWillMount&&d.componentWillMount(),
w&&d.componentDidMount&&d.__h.push(d.componentDidMount);d.context=M,d.props=g,d.__P=e,d.__g&=-5,L=I.__r,O=w?25:0;do d.__g&=-9,L&&L(t),c=d.render(d.props,d.state=
d.__s,d.context);while(8&d.__g&&++O<25);w&&(He.push.apply(d.__h,d.__k),d.__k=[]),d.state=d.__s,d.getChildContext&&(r=Gt({},r,d.getChildContext())),w&&n.__c&&d.getSnapshotBeforeUpdate&&
(v=d.getSnapshotBeforeUpdate(m,b)),B=c&&c.type===re&&c.key==null?c.props.children:c,g.__P&&(c=a,i=(e=g.__P).namespaceURI,u=s=null,n.props&&n.props.__P!=e&&(n.__k.
some(function(q){q&&Kn(q,q)}),n.__k=null),a=n.__k?It(n,0):null),a=ui(e,Wn(B)?B:[B],t,n,r,i,s,o,a,u,l),g.__P&&(t.__e=null,a=c),t.__u&=-161,h&&h.some(Vt),d.__h.length&&
o.push(d),1&d.__g&&(d.__g&=-4)}catch(q){if(o.length=p,t.__v=null,u||s)if(q&&q.then){if(t.__u|=128|u,s){for(~(V=s.indexOf(a||void 0))||(V=s.length);(j=s[V-1])&&j.
nodeType==8;)V--;for(;V<s.length;V++)if(j=s[V])if(s[V]=null,Z){if(j==rt)break}else{if(j.nodeType!=8)break;j.data.startsWith("$s")&&(rt=Ve(Z=j))}}if(!Z){for(;a&&
a.nodeType==8&&a.nextSibling;)a=a.nextSibling;Z=a}(c=Ve(Z=t.__c.__z||(t.__c.__z=Z)))?(t.__e=Z,a=c):t.__e=a,a=a&&a.nextSibling}else s&&s.some(Vt);else t.__e=n.__e;
t.__k||(t.__k=n.__k||[]),q&&q.then||ci(t),I.__e(q,t,n)}}else a=t.__e=zo(n.__e,t,n,r,i,s,o,u,l,e);return(c=I.diffed)&&c(t),a}function Ve(e,t){if(e&&e.nodeType==8&&
e.data.startsWith("$s"))for(var n=1;e=e.nextSibling;){if(e.nodeType==8){if(e.data.startsWith("$s"))n++;else if(e.data.startsWith("/$s")&&!--n)return e}t&&t.push(
e)}}function ci(e){e&&(e.__c&&(e.__c.__g|=4),e.__k&&e.__k.some(ci))}function fi(e,t,n){for(var r=0;r<n.length;)qn(n[r++],n[r++],n[r++]);I.__c&&I.__c(t,e),e.some(
function(i){try{e=i.__h,i.__h=[],e.some(function(s){s.call(i)})}catch(s){I.__e(s,i.__v)}})}function zo(e,t,n,r,i,s,o,a,u,l){var c,h,p,d,m,b,v,g,w=n.props||We,x=t.
props,M=t.type;if(M=="svg"?i="http://www.w3.org/2000/svg":M=="math"?i="http://www.w3.org/1998/Math/MathML":i||(i="http://www.w3.org/1999/xhtml"),s){for(c=0;c<s.
length;c++)if((m=s[c])&&(M?m.localName==M:m.nodeType==3)){e=m,s[c]=null;break}}if(!e){if(g=l.ownerDocument||document,!M)return g.createTextNode(x);e=g.createElementNS(
i,M,x.is?x:l),a&&(I.__m&&I.__m(t,s),a=!1),s=null}if(M){if(l=M=="template"&&e.content||e,s=M=="textarea"&&x.defaultValue!=null?null:s&&si.call(l.childNodes),!a&&
s)for(w={},c=0;c<e.attributes.length;c++)w[(m=e.attributes[c]).name]=m.value;for(c in w)m=w[c],c=="dangerouslySetInnerHTML"?p=m:c=="children"||c in x||c=="value"&&
"defaultValue"in x||c=="checked"&&"defaultChecked"in x||ze(e,c,null,m,i);for(c in x)m=x[c],c=="children"?d=m:c=="dangerouslySetInnerHTML"?h=m:c=="value"?b=m:c==
"checked"?v=m:a&&typeof m!="function"||w[c]===m||ze(e,c,m,w[c],i);h?(a||p&&(h.__html==p.__html||h.__html==e.innerHTML)||(e.innerHTML=h.__html),t.__k=[]):(p&&(e.
textContent=""),(M=="foreignObject"||i=="http://www.w3.org/1998/Math/MathML"&&Lo.test(M))&&(i="http://www.w3.org/1999/xhtml"),ui(l,Wn(d)?d:[d],t,n,r,i,s,o,s?s[0]:
n.__k&&It(n,0),a,u),s&&s.some(Vt)),a&&M!="textarea"||(c="value",M=="progress"&&b==null?e.removeAttribute(c):b==null||b===e[c]&&(M!="progress"||b)||ze(e,c,b,w[c],
i),c="checked",v!=null&&v!=e[c]&&ze(e,c,v,w[c],i))}else w===x||a&&e.data==x||(e.data=x);return e}function qn(e,t,n,r){try{typeof e=="function"?t?t.__x=e(t)||1:r&&
(r=r.__c||r.__e)&&(t=r.__x)&&(r.__x=null,typeof t=="function"?t():e(null)):e.current=t}catch(i){I.__e(i,n)}}function Kn(e,t,n){var r,i,s,o;if(I.unmount&&I.unmount(
e),!(r=e.ref)||r.current&&r.current!=e.__e||qn(r,null,t,e),r=e.__c){if(r.componentWillUnmount)try{r.componentWillUnmount()}catch(a){I.__e(a,t)}r.__P=r.__n=null}
if(r=e.__k)for(o=0;o<r.length;o++)r[o]&&Kn(r[o],t,typeof e.type!="function"||n&&!e.props.__P);!n&&(r=e.__c)&&(r=r.__z)&&(i=Ve(r,s=[]))&&(r==e.__e&&s.some(Vt),Vt(
i),Vt(r)),n||Vt(e.__e),e.__e=e.__c=e.__=null}function Fo(e,t,n){return this.constructor(e,n)}function ie(e,t){var n,r,i,s;I.__&&I.__(e,t),t.nodeType==9&&(t=t.documentElement),
r=(n=e&&32&e.__u)?null:t.__k,t.__k=Re(re,{children:[e]}),i=[],s=[],Hn(t,t.__k,r||We,We,t.namespaceURI,r?null:t.firstChild?si.call(t.childNodes):null,i,r?r.__e:t.
firstChild,n,s),fi(i,t.__k,s),t.__k.props.children=null}I={__e:function(e,t,n,r){for(var i,s,o;t=t.__;)if((i=t.__c)&&!(1&i.__g)){i.__g|=4;try{if((o=(s=i.constructor)&&s.getDerivedStateFromError)&&i.setState(s.getDerivedStateFromError(
e)),i.componentDidCatch&&(i.componentDidCatch(e,r||{}),o=1),o&&8&i.__g)return void(i.__g|=2)}catch(a){e=a}}throw Ge=0,e}},ni=0,Po=function(e){return e!=null&&e.
constructor===ve},W.prototype.setState=function(e,t){var n=this.__s;n&&n!=this.state||(n=this.__s=Gt({},this.state)),typeof e=="function"&&(e=e(Gt({},n),this.props)),
e&&(Gt(n,e),this.__v&&(t&&this.__k.push(t),ti(this)))},W.prototype.forceUpdate=function(e){this.__v&&(this.__g|=4,e&&this.__h.push(e),ti(this))},W.prototype.render=
re,Lt=[],Ge=0,ri=function(e,t){return e.__v.__b-t.__v.__b},Fe=Symbol(),ii=/(PointerCapture)$|Capture$/i,Gn=0,Vn={},To=0;var hi=["B","KiB","MiB","GiB","TiB","PiB"];function A(e){let t=0;for(;e>=999.5&&t<hi.length-1;)[e,t]=[e/1024,t+1];return`${mi(e,t===0)} ${hi[t]}`}var di=["","k",
"M","G","T","P","E"];function se(e){let t=0;for(;e>=999.5&&t<di.length-1;)[e,t]=[e/1e3,t+1];return`${mi(e,t===0)} ${di[t]}`.trim()}function Ut(e){let t=se(e);return/\d$/.
test(t)?`${t} FLOP`:`${t}FLOP`}function mi(e,t){return t?String(Math.round(e)):e>=99.95?e.toFixed(0):e>=9.995?e.toFixed(1):e.toFixed(2)}function we(e,t){return e?
t&&t<e?`, ${Ut(e)}, of which ${Ut(t)} in products`:`, ${Ut(e)}${t?" in products":""}`:""}function E(e){return e.toLocaleString("en-US")}function Dt(e){if(e===null)
return"–";if(e===0||Number.isInteger(e)&&Math.abs(e)<1e6)return E(e);let t=Math.abs(e);return t>=.001&&t<1e5?String(Number(e.toPrecision(4))):e.toExponential(
2)}var Bt={added:"+",removed:"−",changed:"~"};function Q(e,t){return`${E(e)} ${t}${e===1?"":"s"}`}function gi(e){let t=e.split(".");return t.length>=3?t[t.length-
2]:t[t.length-1]}var Ro='system-ui, "Segoe UI", Helvetica, Arial, sans-serif',pi=100,Vo={normal:new Map,bold:new Map},qe=null;function bi(e,t){let n=Vo[t?"bold":
"normal"],r=n.get(e);if(r!==void 0)return r;if(typeof document>"u")return .6;if(qe??=document.createElement("canvas").getContext("2d"),!qe)return .65;qe.font=`${t?
600:400} ${pi}px ${Ro}`;let i=qe.measureText(e).width/pi;return n.set(e,i),i}function z(e,t,n=!1){let r=0;for(let i of e)r+=bi(i,n);return r*t}function Wt(e,t,n,r=!1){
if(z(e,n,r)<=t)return e;let[i,s]=[t-z("…",n,r),0];for(let o of e){if(i-=bi(o,r)*n,i<0)break;s+=o.length}return s?`${e.slice(0,s).trimEnd()}…`:""}var Go=/[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\uffff\ud800-\udfff]/gu;
function ut(e){return e.replace(Go,t=>`\\u${t.charCodeAt(0).toString(16).padStart(4,"0")}`)}var Wo=[["attention",/^_?(scaled_dot_product|flash_attention|efficient_attention|flex_attention)/],
["convolution",/^(_?conv|convolution|cudnn_conv|mkldnn_conv|slow_conv|thnn_conv)/],["matmul",/^_?(mm|addmm|bmm|baddbmm|addbmm|mv|addmv|dot|vdot|matmul|linear|scaled_mm|int_mm|grouped_mm|weight_int\w*)(_\w+)?$/],
["norm",/(layer|batch|group|rms|instance)_norm|^_?(weight_norm|native_\w*norm)|cudnn_batch_norm/],["softmax",/softmax/],["embedding",/embedding|^gather|^scatter|index|^take/],
["pool",/pool|upsample|interpolate|grid_sample/],["random",/dropout|^(rand|bernoulli|normal|uniform|multinomial|philox)/],["reduction",/^(sum|mean|var|std|amax|amin|max|min|argmax|argmin|any|all|prod|logsumexp|norm|linalg_vector_norm|cum\w+|nll_loss\w*|mse_loss\w*)(_|$)/],
["creation",/^(full|zeros|ones|empty|arange|new_|scalar_tensor|eye|tril|triu|linspace)/],["copy",/^(clone|_to_copy|copy|contiguous|cat|stack|constant_pad|roll|flip|sort|topk)/]];
function yi(e,t,n){return n?"guard":t?"view":Wo.find(([,r])=>r.test(e))?.[0]??"pointwise"}var bt=["added","removed","changed"],Xn=1,wi=2,_i=4,oe=class extends Error{constructor(n,r){super();this.where=n;this.what=r}where;what;get message(){return`${this.
where}: ${this.what}`}},vi=["program","module","loop","turn","line","steps"];function Ke(e,t){throw new oe(e,t)}function N(e,t,n){e||Ke(t,n)}function et(e){let t=JSON.
stringify(e)??"nothing";return t.length>60?`${t.slice(0,60)}…`:t}function gt(e,t){return N(typeof e=="object"&&e!==null&&!Array.isArray(e),t,`an object was ex\
pected, found ${et(e)}`),e}function Ht(e,t){return N(Array.isArray(e),t,`a list was expected, found ${et(e)}`),e}function lt(e,t){N(typeof e=="string",t,`a text\
 was expected, found ${et(e)}`)}function $t(e,t,n,r){Number.isSafeInteger(e)&&e>=t&&e<n||Ke(r,`${et(e)} is not a whole number from ${t} to ${n===1/0?"2**53 - 1":
n-1}`)}function X(e,t){typeof e=="number"&&Number.isFinite(e)&&e>=0||Ke(t,`${et(e)} is not a number of 0 or more`)}function T(e,t,n){let r=Ht(e,t),i=0;try{for(;i<
r.length;i++)n(r[i],"",i)}catch(s){throw s instanceof oe&&(s.where=`${t}[${i}]${s.where}`),s}}function ct(e,t,n){let r=Ht(e,t);N(r.length===n.length,t,`${n.length}\
 entries were expected, found ${r.length}`),T(r,t,(i,s,o)=>n[o](i,s))}var D=(e,t)=>(n,r)=>$t(n,e,t,r);function Ho(e,t){let n=gt(e.nodes,`${t}.nodes`),r=Ht(n.name,
`${t}.nodes.name`).length,[i,s]=[D(0,e.strings.length),D(0,1/0)],o={name:i,op:i,args:i,spec:i,echo:i,source:D(-1,e.sources.length),frame:D(0,e.frames.length),product:X,
other:X,read:s,written:s,memory:s,flags:D(0,8),inputs:(a,u)=>T(a,u,D(0,r+e.ports.length)),partners:(a,u)=>T(a,u,D(0,e.forward))};for(let[a,u]of Object.entries(o)){
let l=Ht(n[a],`${t}.nodes.${a}`);N(l.length===r,`${t}.nodes.${a}`,`${r} entries were expected, one a step, found ${l.length}`),T(l,`${t}.nodes.${a}`,u)}$t(e.forward,
0,r+1,`${t}.forward`)}function qo(e,t){let n=e.nodes.name.length,r=D(0,e.strings.length),i=e.ports.filter(a=>a.into).length;T(e.ports,`${t}.ports`,(a,u)=>{let l=gt(
a,u);$t(l.side,0,2,`${u}.side`),N(typeof l.into=="boolean",`${u}.into`,`true or false was expected, found ${et(l.into)}`),lt(l.role,`${u}.role`),r(l.name,`${u}.\
name`),r(l.spec,`${u}.spec`),X(l.bytes,`${u}.bytes`),$t(l.value,l.into?n:-1,n+i,`${u}.value`)});let s=n;e.ports.forEach((a,u)=>{a.into&&N(a.value===s++,`${t}.po\
rts[${u}].value`,`${s-1} was expected, found ${a.value}`)});let o=D(0,n+i);T(e.nodes.inputs,`${t}.nodes.inputs`,(a,u)=>T(a,u,o)),T(e.saved,`${t}.saved`,(a,u)=>ct(
a,u,[o,D(n,n+i),X,X]))}function Ko(e,t){let{frames:n,layouts:r,nodes:i}=e,s=D(0,e.strings.length),o={steps:new Uint8Array(i.name.length),frames:new Uint8Array(n.
length)};N(n.length>0,`${t}.frames`,"there is no frame"),n.forEach((u,l)=>{let c=`${t}.frames[${l}]`;s(u.name,`${c}.name`),s(u.label,`${c}.label`),N(vi.includes(
u.kind),`${c}.kind`,`${et(u.kind)} is none of ${vi.join(", ")}`),$t(u.parent,l?0:-1,l?n.length:0,`${c}.parent`),$t(u.layout,u.kind==="loop"?-1:0,u.kind==="loop"?
0:r.length,`${c}.layout`),ct(u.counts,`${c}.counts`,[X,X,X,X,X]),T(u.units,`${c}.units`,D(-n.length,i.name.length)),N(u.kind!=="loop"||u.units.length,c,"a loop \
without a turn");for(let h of u.units){let[p,d]=h<0?[o.frames,-h-1]:[o.steps,h];N(!p[d]++,c,`${h<0?"frame":"step"} ${d} is in two frames`);let m=h<0?n[d].parent:
i.frame[d];N(m===l,c,`${h<0?"frame":"step"} ${d} says that it is in frame ${m}`),N(u.kind!=="loop"||h<0,c,`step ${d} is a turn of a loop`)}});let a=o.steps.indexOf(
0);N(a<0,`${t}.frames`,`step ${a} is in no frame`),n.forEach((u,l)=>{let[c,h]=[l,n.length];for(;c>0&&h--;)N(o.frames[c],`${t}.frames[${c}]`,"it is in no frame"),
c=n[c].parent;N(c<=0,`${t}.frames[${l}]`,"it is inside itself")}),n.forEach((u,l)=>{u.layout>=0&&Zo(r[u.layout],u,e.forward,`${t}.frames[${l}]`)}),Yo(e,t)}var Xo=[
"steps forward","steps backward","saved bytes","FLOPs of products forward","FLOPs of products backward"];function Yo(e,t){let{frames:n,nodes:r,forward:i}=e,s=new Map;
for(let[a,,,u]of e.saved)s.set(a,(s.get(a)??0)+u);let o=n.map(()=>[0,0,0,0,0]);r.name.forEach((a,u)=>{let l=o[r.frame[u]],c=u<i?0:1;l[c]+=1,l[2]+=s.get(u)??0,l[3+
c]+=r.product[u]});for(let a of jo(n).reverse())a&&o[a].forEach((u,l)=>{o[n[a].parent][l]+=u});n.forEach((a,u)=>a.counts.forEach((l,c)=>N(l===o[u][c]||l>Number.
MAX_SAFE_INTEGER,`${t}.frames[${u}].counts`,`it says ${l} ${Xo[c]}, and its steps add up to ${o[u][c]}`)))}function jo(e){let t=[0];for(let n of t)for(let r of e[n].
units)r<0&&t.push(-r-1);return t}function Zo(e,t,n,r){let i=new Uint8Array(t.units.length);for(let s of e.rows)s.forEach((o,a)=>{for(let u of o)N(u<t.units.length&&
!i[u]++,r,`its layout gives ${u} no place, or two`),N(t.units[u]<0==(a===1),r,`its layout takes unit ${u} for a ${a===1?"frame":"step"}`),N(a===1||t.units[u]<n==
(a===0),r,`its layout has step ${t.units[u]} on the side of the ${a?"backward":"forward"}`)});N(i.every(Boolean),r,`its layout has no place for unit ${i.indexOf(
0)}`)}function Qo(e,t){T(e.layouts,`${t}.layouts`,(n,r)=>{let i=gt(n,r),s=0;T(i.rows,`${r}.rows`,(a,u)=>{ct(a,u,[0,1,2].map(()=>(l,c)=>T(l,c,D(0,1/0)))),s+=a.flat().
length}),ct(i.slots,`${r}.slots`,[D(0,1e5),D(0,1e5)]);let o=D(-1,s);["left","right"].forEach((a,u)=>T(i[a],`${r}.${a}`,(l,c)=>ct(l,c,[o,o,D(-1,i.slots[u]),D(0,e.
strings.length),X]))),T(i.bridges,`${r}.bridges`,(a,u)=>ct(a,u,[o,o,X,X]))})}function Jo(e,t){let n=e.nodes.name.length,r=gt(e.memory,`${t}.memory`);X(r.before,
`${t}.memory.before`),T(r.live,`${t}.memory.live`,X),N(e.memory.live.length===n,`${t}.memory.live`,`${n} entries were expected, one a step, found ${e.memory.live.
length}`);let i=D(-1,n+e.ports.length),s=(o,a)=>ct(o,a,[i,D(0,n+1),D(0,n+1),X,D(0,e.strings.length)]);for(let o of["spans","held"])T(r[o],`${t}.memory.${o}`,s);
ct(r.peak,`${t}.memory.peak`,[D(-1,Math.max(n,1)),X]),ta(e.memory,n,`${t}.memory`)}function ta({live:e,spans:t,peak:n},r,i){let s=new Float64Array(r+2);for(let[
,u,l,c]of t)s[u]+=c,s[l+1]-=c;let o=0;for(let u=0;u<r;u++)o+=s[u],N(e[u]===o||o>Number.MAX_SAFE_INTEGER,`${i}.live[${u}]`,`it says ${e[u]} bytes, and its spans \
add up to ${o}`);let a=e.reduce((u,l)=>Math.max(u,l),0);N(n[1]===a&&(!r||e[n[0]]===a),`${i}.peak`,`it says ${n[1]} bytes at step ${n[0]}, and the most that live\
 are ${a}`)}function ea(e,t){if(e.stats===void 0)return;let{value:n,rows:r}=gt(e.stats,t);T(n,`${t}.value`,D(0,e.nodes.name.length+e.ports.length)),T(r,`${t}.ro\
ws`,(i,s)=>{N(Ht(i,s).length===9,s,`9 numbers were expected, found ${i.length}`),T(i,s,(o,a)=>N(o===null||Number.isFinite(o),a,`${et(o)} is not a number`))}),N(
n.length===r.length,t,`${n.length} values and ${r.length} rows`)}var na={added:["+ "],removed:["- "],changed:["- ","+ "]};function ra(e,t){let n=gt(e.marks,t),r=e.
nodes.name.length;$t(n.pair,-1,1/0,`${t}.pair`),T(n.node,`${t}.node`,(i,s,o)=>$t(i,o?n.node[o-1]+1:0,r,s));for(let i of["kind","text","other"]){let s=Ht(n[i],`${t}\
.${i}`).length;N(s===n.node.length,`${t}.${i}`,`${n.node.length} entries were expected, one a marked step, found ${s}`)}T(n.kind,`${t}.kind`,(i,s)=>N(bt.includes(
i),s,`${et(i)} is none of ${bt.join(", ")}`)),T(n.text,`${t}.text`,(i,s,o)=>{lt(i,s);let a=i.split(`
`),u=na[n.kind[o]];N(a.length===u.length&&u.every((l,c)=>a[c].startsWith(l)),s,`${u.length===1?"a line":"two lines"} with ${u.join("and ").trim()} in front was \
expected of a step that was ${n.kind[o]}, found ${et(i)}`)})}function ia(e){e.forEach(({marks:t},n)=>{let r=`pairs[${n}].marks`,{pair:i,node:s,kind:o,text:a,other:u}=t,
l=e[i]?.marks;$t(i,-1,e.length,`${r}.pair`),N(l?l.pair===n&&i!==n:i<0,`${r}.pair`,`pair ${i} says that its other pair is ${l?.pair}`);let c=new Map(l?.node.map(
(h,p)=>[h,p]));T(u,`${r}.other`,(h,p,d)=>{if(o[d]!=="changed")return N(h===-1,p,`-1 was expected of a step that was ${o[d]}, found ${et(h)}`);let m=c.get(h)??-1;
N(m>=0&&l.other[m]===s[d]&&l.text[m]===a[d],p,`step ${et(h)} of pair ${i} is not marked as what this step was or became`)})})}function sa(e,t){let n=gt(e,t);lt(
n.name,`${t}.name`),T(n.strings,`${t}.strings`,lt),N(n.strings[0]==="",`${t}.strings`,"the first is not the empty text");for(let s of["ports","sources","saved",
"frames","layouts"])Ht(n[s],`${t}.${s}`);T(n.frames,`${t}.frames`,gt);let r=D(0,n.strings.length);T(n.sources,`${t}.sources`,(s,o)=>ct(s,o,[r,D(0,1/0),r,r,r])),
Ho(n,t),qo(n,t),Qo(n,t),Ko(n,t),Jo(n,t);let i=gt(n.code,`${t}.code`);for(let s of[i.forward,i.backward])T(s,`${t}.code`,lt);ct(i.ends,`${t}.code.ends`,[0,1].map(
()=>(s,o)=>T(s,o,lt))),ea(n,`${t}.stats`),n.marks!==void 0&&ra(n,`${t}.marks`)}function xi(e){let t;try{t=JSON.parse(e)}catch(s){Ke("data",`they are not JSON (${s.
message})`)}let n=gt(t,"data");N(n.format===1,"format",`this page reads format 1, found ${et(n.format)}; write the page again with this version of Backprint`),lt(
n.title,"title"),T(n.facts,"facts",(s,o)=>ct(s,o,[lt,lt])),T(n.notes,"notes",lt),T(n.pairs,"pairs",sa),N(n.pairs.length,"pairs","there is none");let r=n.changes!==
void 0;r&&T(n.changes,"changes",lt),n.pairs.forEach((s,o)=>N(s.marks!==void 0===r,`pairs[${o}].marks`,r?"the page has changes, and this pair has no marks":"this\
 pair has marks, and the page has no changes")),r&&ia(n.pairs);let i=n.pairs.map(s=>({...s,name:ut(s.name)}));return{...n,title:ut(n.title),facts:n.facts.map(([
s,o])=>[ut(s),ut(o)]),notes:n.notes.map(ut),...n.changes&&{changes:n.changes.map(ut)},pairs:i}}var F=e=>-e-1,Xe=class{constructor(t,n=""){this.data=t;this.called=n;let{nodes:r,frames:i}=t;this.count=r.name.length,this.strings=t.strings.map(ut),this.entering=
t.ports.filter(s=>s.into),this.shorts=r.op.map(s=>gi(this.strings[s])),this.kinds=this.shorts.map((s,o)=>yi(s,(r.flags[o]&Xn)!==0,(r.flags[o]&wi)!==0)),[this.starts,
this.users]=oa(r.inputs,this.count+this.entering.length),this.pulled=aa(r.partners,this.count),this.place=new Int32Array(this.count),this.framePlace=new Int32Array(
i.length);for(let s of i)s.units.forEach((o,a)=>(o<0?this.framePlace:this.place)[o<0?-o-1:o]=a);[this.alike,this.depth]=this.structure(),this.deepest=this.depth.
reduce((s,o)=>Math.max(s,o),0),this.timed=t.memory.spans.length>0||t.memory.peak[1]>0||t.memory.before>0,this.savedFrom=new Map;for(let[s,o,a,u]of t.saved)_e(this.
savedFrom,s).push([o,a,u]);this.pills=this.portPills(),this.bad=new Map,t.stats?.value.forEach((s,o)=>{let[a,u]=[t.stats.rows[o][6],t.stats.rows[o][7]];(a||u)&&
this.bad.set(s,{nan:a,inf:u})}),this.flops=this.flopsInside(),t.marks?.node.forEach((s,o)=>this.mark(s,o)),this.badFrames=new Set([...this.bad.keys()].filter(s=>s<
this.count).flatMap(s=>this.above(s)))}data;called;count;strings;entering;shorts;kinds;starts;users;pulled;place;framePlace;alike;depth;deepest;pills;timed;bad;badFrames;savedFrom;marks=new Map;flops;marked=new Map;lines;paths;lineAt;flopsInside(){
let{nodes:t,frames:n}=this.data,r=n.map(()=>[0,0]);for(let i=0;i<this.count;i++){let s=t.product[i]+t.other[i];if(s)for(let o=t.frame[i];o>=0;o=n[o].parent)r[o][this.
isForward(i)?0:1]+=s}return r}mark(t,n){let{kind:r,text:i,other:s}=this.data.marks,a=i[n].split(`
`).map(u=>[u.startsWith("-")?"before":"after",ut(u.slice(2))]);this.marks.set(t,{kind:r[n],texts:a,other:s[n]});for(let u of this.above(t)){let l=this.marked.get(
u)??Object.fromEntries(bt.map(c=>[c,0]));this.marked.set(u,l),l[r[n]]++}}text(t){return this.strings[t]}frame(t){return this.data.frames[t]}isForward(t){return t<
this.data.forward}nameOf(t){return t<0?"a constant":this.strings[t<this.count?this.data.nodes.name[t]:this.entering[t-this.count].name]}specOf(t){return t<0?"":
this.strings[t<this.count?this.data.nodes.spec[t]:this.entering[t-this.count].spec]}usersOf(t){return[...this.users.subarray(this.starts[t],this.starts[t+1])]}lineOf(t){
let n=this.data.sources[this.data.nodes.source[t]];return n?`${this.strings[n[0]]}:${n[1]}`:""}moduleOf(t){let n=this.data.sources[this.data.nodes.source[t]];return n?
this.strings[n[4]]:""}savedSum(){let t={own:[0,0],rest:[0,0]};for(let[,,n,r]of this.data.saved){let i=r?t.own:t.rest;i[0]++,i[1]+=r||n}return t}isSaved(t){return(this.
data.nodes.flags[t]&_i)!==0}isView(t){return(this.data.nodes.flags[t]&Xn)!==0}above(t){let n=[];for(let r=t<0?this.frame(-t-1).parent:this.data.nodes.frame[t];r>=
0;r=this.frame(r).parent)n.push(r);return n}title(t){let{name:n,parent:r,kind:i,label:s}=this.frame(t);if(r<0&&this.called)return this.called;let[o,a]=[this.strings[n],
r>=0?this.strings[this.frame(r).name]:""];return(a&&o.startsWith(`${a}.`)?o.slice(a.length+1):o)||this.strings[s]||i}isTurn(t){let{parent:n}=this.frame(t);return n>=
0&&this.frame(n).kind==="loop"}path(t){return(this.paths??=this.allPaths())[t]}allPaths(){let t=[],n=r=>{if(t[r]!==void 0)return t[r];let{name:i,parent:s,kind:o}=this.
frame(r),a=s>0?n(s):"",u=o==="loop"?this.strings[i].replace(/\.?\d+…\d+$/,""):this.strings[i];return t[r]=s<0?"":[a,u].filter(Boolean).join(o==="line"?" ":".")};
return this.data.frames.forEach((r,i)=>n(i)),t}*inside(t){for(let n of this.frame(t).units)n>=0?yield n:yield*this.inside(-n-1)}call(t){let{op:n,args:r,inputs:i}=this.
data.nodes,s=this.strings[r[t]].replace(/\{(\d+)\}/g,(o,a)=>a in i[t]?this.nameOf(i[t][a]):o);return`${this.strings[n[t]]}(${s})`}echoOf(t){let{echo:n,partners:r}=this.
data.nodes,i=this.strings[n[t]];return i&&`${i} ${r[t].map(s=>this.nameOf(s)).join(", ")}`}code(){if(this.lines)return this.lines;let{forward:t,code:n}=this.data,
r=[],i=a=>r.push({node:-1,text:ut(a)}),s="",o=(a,u)=>{for(let l=a;l<u;l++){let c=[this.echoOf(l),this.moduleOf(l),this.lineOf(l)].filter(Boolean).join("; ");c&&
c!==s&&r.push({node:l,text:`# ${s=c}`}),r.push({node:l,text:null})}};return n.forward.forEach(i),o(0,t),n.ends[0].forEach(i),(this.count>t||n.backward.length)&&
i(""),n.backward.forEach(i),o(t,this.count),n.ends[1].forEach(i),this.lineAt=new Int32Array(this.count),r.forEach((a,u)=>{a.node>=0&&(this.lineAt[a.node]=u)}),this.
lines=r}lineOfCode(t){return this.code(),this.lineAt[t]}structure(){let{frames:t}=this.data,n=new Map,[r,i]=[new Int32Array(t.length),new Int32Array(t.length)],
s=(o,a,u)=>{let l=a>=0&&t[t[o].parent].kind==="loop",c=`${a}:${l?"*":this.framePlace[o]}`;n.has(c)||n.set(c,n.size),r[o]=n.get(c),i[o]=u;for(let h of t[o].units)
h<0&&s(-h-1,r[o],l?u:u+1)};return s(0,-1,0),[r,i]}portPills(){let t=new Map,n=i=>t.get(i)??(t.set(i,{outer:[],made:[]}),t.get(i)),r=i=>{let s=this.strings[i.name];
return{text:s.split(".").at(-1),title:`${i.role} ${s} ${this.strings[i.spec]}`,role:i.role}};for(let i of this.entering)if(i.role==="parameter"||i.role==="buffe\
r")for(let s of this.usersOf(i.value))n(s).outer.push(r(i));for(let i of this.data.ports)!i.into&&i.role!=="saved"&&i.value>=0&&i.value<this.count&&n(i.value).made.
push(r(i));return t}};function _e(e,t){let n=e.get(t)??[];return e.set(t,n),n}function oa(e,t){let n=new Int32Array(t+1),r=e.map(o=>[...new Set(o)]);for(let o of r)
for(let a of o)n[a+1]++;for(let o=0;o<t;o++)n[o+1]+=n[o];let i=n.slice(),s=new Int32Array(n[t]);return r.forEach((o,a)=>o.forEach(u=>s[i[u]++]=a)),[n,s]}function aa(e,t){
let n=Array.from({length:t},()=>[]);return e.forEach((r,i)=>r.forEach(s=>n[s].push(i))),n}var ua=Symbol.for("pv"),la=0;function f(e,t,n,r,i,s){t||(t={});var o,a,u=t;if("ref"in u&&typeof e!="function")for(a in u={},t)a=="ref"?o=t[a]:u[a]=t[a];var l={type:e,props:u,key:n,ref:o,__k:null,
__:null,__b:0,__e:null,__c:null,constructor:ua,__v:--la,__i:-1,__u:0};return(i||s)&&(l.__source=i,l.__self=s),I.vnode&&I.vnode(l),l}function ki(e){return e.flatMap((t,n)=>{let r=new Map,i=(t.data.marks?.pair??-1)<n;for(let[s,o]of t.marks)(o.other<0||!i)&&_e(r,$i(t,s)).push({pair:n,node:s});return[
...r.values()].flat()})}function $i(e,t){let n=e.data.nodes.frame[t];return e.moduleOf(t)||e.path(n)||e.title(n)}function Yn(e,t,n,r){let{marks:i,data:s}=t[n],o=s.
marks?.pair,a=r===null?void 0:i.get(r)?.other;return e.findIndex(u=>u.pair===n&&u.node===r||u.pair===o&&u.node===a)}function jn(e,t){let n=e.marked.get(t);return n?
bt.filter(r=>n[r]).map(r=>`${E(n[r])} ${r}`).join(", "):""}function Zn({page:e,model:t,node:n,jump:r}){let{kind:i,texts:s,other:o}=t.marks.get(n),{pair:a}=t.data.
marks;return f("div",{class:"change",children:[f("p",{children:[f("b",{class:"sign",children:Bt[i]})," ",i,o>=0&&", ",o>=0&&f("button",{class:"link",onClick:()=>r(
a,o),children:["see ",f("bdi",{children:e.pairs[a].name})]})]}),f("dl",{children:s.map(([u,l])=>[f("dt",{children:u},u),f("dd",{children:f("code",{children:f("b\
di",{children:l})})},`${u} `)])})]})}var ca=200,fa=100,Ye=class extends W{state={lines:ca,rows:fa};chosen=at();componentDidUpdate(t){t.at!==this.props.at&&this.
chosen.current?.scrollIntoView({block:"nearest"})}row(t,n){let{page:r,models:i,jump:s,at:o}=this.props,a=i[t.pair],{kind:u}=a.marks.get(t.node);return f("li",{class:n===
o?"chosen":"",ref:n===o?this.chosen:null,"aria-current":n===o,children:[f("b",{class:"sign",title:u,children:Bt[u]}),f("button",{class:`link ${a.isForward(t.node)?
"forward":"backward"}`,title:a.call(t.node),onClick:()=>s(t.pair,t.node),children:f("bdi",{children:a.nameOf(t.node)})}),f("code",{class:"soft",children:a.specOf(
t.node)}),n===o&&f(Zn,{page:r,model:a,node:t.node,jump:s})]},`${t.pair} ${t.node}`)}rows(t){let{page:n,models:r,marked:i}=this.props,s=({pair:o,node:a})=>`${n.pairs[o].
name}, ${$i(r[o],a)}`;return i.slice(0,t).flatMap((o,a)=>{let u=this.row(o,a),l=s(o);return a&&s(i[a-1])===l?[u]:[f("li",{class:"head",children:f("bdi",{children:l})},
`${a} head`),u]})}render({page:t,marked:n,at:r}){let i=t.changes,{lines:s,rows:o}=this.state,a=Math.max(o,r+20);return f("div",{class:"panel",children:[f("h2",{
children:"Changes"}),f("div",{class:"said",children:i.slice(0,s).map((u,l)=>f("div",{class:/^\s+[-+~!]/.test(u)?"one":"",children:f("bdi",{children:u})},l))}),i.
length>s&&f("button",{class:"more",onClick:()=>this.setState({lines:1/0}),children:["show more: ",E(s)," of ",Q(i.length,"line")]}),f("h3",{children:"Steps"}),n.
length?f("ul",{class:"marked",children:this.rows(a)}):f("p",{class:"soft",children:"No step is marked."}),n.length>a&&f("button",{class:"more",onClick:()=>this.
setState({rows:a*5}),children:["show more: ",E(a)," of ",E(n.length)]})]})}};var qt=18,je=class extends W{state={from:0,count:60};box=at();watcher=new ResizeObserver(()=>this.scrolled());componentDidMount(){this.watcher.observe(this.box.
current),this.follow()}componentWillUnmount(){this.watcher.disconnect()}componentDidUpdate(t){(t.selected!==this.props.selected||t.model!==this.props.model)&&this.
follow()}target(){let{model:t,selected:n}=this.props;return n===null||n>=0?n:t.inside(-n-1).next().value??null}follow(){let t=this.target(),n=this.box.current;if(t!==
null){let r=this.props.model.lineOfCode(t)*qt;(r<n.scrollTop+qt||r>n.scrollTop+n.clientHeight-2*qt)&&(n.scrollTop=r-n.clientHeight/2)}this.scrolled()}scrolled=()=>{
let t=this.box.current,n=Math.max(0,Math.floor(t.scrollTop/qt)-10),r=Math.ceil(t.clientHeight/qt)+20;(n!==this.state.from||r!==this.state.count)&&this.setState(
{from:n,count:r})};step(t){let{model:n}=this.props,{op:r,args:i,inputs:s,spec:o}=n.data.nodes,a=[];return n.text(i[t]).split(/\{(\d+)\}/).forEach((l,c)=>{c%2===
0?a.push(l):Number(l)<s[t].length?a.push(f("span",{class:"value",children:f("bdi",{children:n.nameOf(s[t][Number(l)])})})):a.push(`{${l}}`)}),[f("b",{class:n.isForward(
t)?"forward":"backward",children:f("bdi",{children:n.nameOf(t)})}),": ",f("i",{children:['"',n.text(o[t]),'"']})," = ",f("span",{class:"op",children:n.text(r[t])}),
"(",...a,")"]}render({model:t,selected:n,lit:r,go:i}){let s=t.code(),{from:o,count:a}=this.state,u="    ";return f("div",{class:"code",ref:this.box,tabIndex:0,onScroll:this.
scrolled,"data-lines":s.length,children:f("div",{class:"sheet",style:{height:`${s.length*qt}px`},children:s.slice(o,o+a).map((l,c)=>{let h=l.node>=0&&l.node===n,
p=l.node>=0&&r?.has(l.node),d=t.marks.get(l.node);return f("div",{class:`row${h?" chosen":p?" lit":""}${l.text===null?"":l.node>=0?" note":""}`,style:{top:`${(o+
c)*qt}px`},onClick:l.node>=0?()=>i(l.node):void 0,children:[f("span",{class:"no",children:[d&&l.text===null&&f("b",{class:"sign",children:[Bt[d.kind]," "]}),o+c+
1]}),l.text===null?[u,u,this.step(l.node)]:l.node>=0?u+u+l.text:l.text]},o+c)})})})}};var J=28,Mt=156,$e=10,ae=J+$e+Mt/2,ue=24,tn=17,er=28,en=20,ha=50,Ni=8,Qn=30,Mi=14,Ci=10;function Kt(e,t,n){return t.open.has(e.alike[n])}function le(e,t,n){let{
kind:r,units:i}=e.frame(n);return r!=="loop"?n:le(e,t,-i[Math.min(zt(e,t,n),i.length-1)]-1)}function zt(e,t,n){return Math.min(t.turn.get(e.alike[n])??0,e.frame(
n).units.length-1)}var nn=.45,Me=e=>e<500?8:24,ce=14;function fe(e){return Math.min(z(e,ce,!0)+10,116)}function rn(e,t){let n=e.pills.get(t),r=[];if(!n)return{left:r,
right:r};let i=[...n.outer,...n.made],s=i.length>4?[...i.slice(0,3),{text:`+${i.length-3}`,title:i.slice(3).map(o=>o.title).join(`
`),role:"more"}]:i;return e.isForward(t)?{left:s,right:r}:{left:r,right:s}}function da(e,t){let{left:n,right:r}=rn(e,t),i=o=>o.length?Math.max(...o.map(a=>fe(a.
text)))+5:0,s=Math.max(e.isView(t)?en:er,Math.max(n.length,r.length)*tn);return{left:Mt/2+i(n),right:Mt/2+i(r),height:s}}var Jn={left:J+$e+Mt,right:J+$e+Mt,height:ha};
function Ai(e,t,n){if(!Kt(e,t,n))return Jn;let r=e.frame(le(e,t,n)),i=e.data.layouts[r.layout],s=[],o=[],a=[],[u,l,c]=[ue+Qn,Jn.left,Jn.right];i.rows.forEach((d,m)=>{
let b=d.map(L=>L.map(O=>{let B=r.units[O];return{unit:B,block:B<0?Ai(e,t,-B-1):da(e,B)}})),v=Math.max(en,...b.flat().map(L=>L.block.height)),g=(L,O,B)=>{s.push(
{unit:L,x:O,y:u+(v-B.height)/2,block:B,row:m}),[l,c]=[Math.max(l,B.left-O),Math.max(c,B.right+O)]},[w,x]=pa(b[1],g),M=-Math.max(w,J)-$e;for(let{unit:L,block:O}of b[0].
reverse())[M]=[M-O.right-O.left-12,g(L,M-O.right,O)];M=Math.max(x,J)+$e;for(let{unit:L,block:O}of b[2])[M]=[M+O.right+O.left+12,g(L,M+O.left,O)];o.push(u),a.push(
u+v),u+=v+Qn});let[h,p]=[i.slots.map(d=>d?d*Ci+6:0),Math.max(u,ue+Qn)+Ni];return{left:l+h[0]+Mi,right:c+h[1]+Mi,height:p,inside:s,tops:o,bottoms:a,walls:[-l-4,c+
4]}}function pa(e,t){if(!e.length)return[0,0];let n=e.reduce((s,{block:o})=>s+o.left+o.right,0)+(e.length-1)*18,r=e.length===1?-e[0].block.left:-n/2,i=-r;for(let{
unit:s,block:o}of e)t(s,r+o.left,o),r+=o.left+o.right+18;return[i,r-18]}function sn(e,t){let n=Ai(e,t,0),r=[],i=[],s=rr(e),o=(l,c,h,p,d,m)=>{let b=-l-1,v=l>=0,g={
unit:l,x:h-(v?Mt/2:c.left),y:p,w:v?Mt:c.left+c.right,h:c.height,mid:h,kind:v?"node":c.inside?"open":"folded",level:d,around:m};if(r.push(g),!c.inside)return;for(let x of c.
inside)o(x.unit,x.block,h+x.x,p+x.y,d+1,l);let w=le(e,t,b);i.push(...ma(e,w,b,c,h,p,s))};o(F(0),n,0,0,0,null);let a=new Map(r.map(l=>[l.unit,l])),u=new Map(i.map(
l=>[l.key,l]));return{boxes:r,lines:i,byUnit:a,lineOf:u,left:-n.left,right:n.right,height:n.height}}function nr(e,t,n,r){return`${e}/${t}/${n??"in"}/${r??"out"}`}
function rr(e){let t=Math.max(1,e.frame(0).counts[2],...e.data.saved.map(n=>n[2]));return n=>Math.min(20,Math.max(1.6,20*Math.cbrt(n/t)))}function ma(e,t,n,r,i,s,o){
let a=e.data.layouts[e.frame(t).layout],{units:u}=e.frame(t),l=new Map(r.inside.map(h=>[h.unit,h])),c=[];for(let h of["left","right"]){let p=ga(a,h,u,l),d=new Set;
a[h].forEach((m,b)=>{let v=ba(m,h,u,l,r,p[b]),g=m[2]<0?ya(v[0],v[1]):va(v,m,h,r);c.push(Si(g,i,s,{within:n,side:h,from:m[0]<0?null:u[m[0]],to:m[1]<0?null:u[m[1]],
width:1.3+Math.log2(Math.max(1,m[4]))*.35,label:d.has(m[0])?"":e.text(m[3]).replace(/\].*$/,"]")})),d.add(m[0])})}return a.bridges.forEach((h,p)=>{let d=_a(h,u,
l,r,p);c.push(Si(d,i,s,{within:n,side:"bridge",from:h[0]<0?null:u[h[0]],to:h[1]<0?null:u[h[1]],width:o(h[2]),label:`${h[2]}`}))}),c}function Si(e,t,n,r){let i=e.
parts.flatMap(([,...h])=>h),[s,o]=[i.map(h=>h[0]+t),i.map(h=>h[1]+n)],[a,u]=[Math.min(...s),Math.min(...o)],l=e.parts.map(([h,...p])=>h+p.map(d=>`${Ei(d[0]+t)},${Ei(
d[1]+n)}`).join(" ")).join(""),c=([h,p])=>[h+t,p+n];return{...r,key:nr(r.within,r.side,r.from,r.to),d:l,at:e.at.map(c),ends:[c(i[0]),c(i[i.length-1])],box:[a,u,
Math.max(...s)-a,Math.max(...o)-u]}}var Ei=e=>Math.round(e*10)/10;function ga(e,t,n,r){let i=new Map,s=e[t].map(()=>0);e[t].forEach((a,u)=>i.set(a[1],[...i.get(
a[1])??[],u]));let o=a=>{let[u,,l]=e[t][a],c=t==="left"?-1:1;return l>=0?c*(1e4+l):u<0?c*ae:r.get(n[u]).x};for(let[a,u]of i){if(u.length<2||a<0)continue;u.sort(
(c,h)=>o(c)-o(h));let l=Math.min(Mt*.6,u.length*16);u.forEach((c,h)=>s[c]=((h+.5)/u.length-.5)*l)}return s}function ba([e,t],n,r,i,s,o){let a=n==="left",u=a?-1:
1,[l,c]=[ue,s.height-Ni],h=d=>{let m=d===a?l:c;return{x:u*ae,y:m,clear:m}},p=(d,m)=>{if(d<0)return h(m);let b=i.get(r[d]),v=m===a;return{x:b.x+(b.unit<0?u*ae:0)+
(m?0:o),y:v?b.y+b.block.height:b.y,clear:v?s.bottoms[b.row]:s.tops[b.row]}};return[p(e,!0),p(t,!1)]}function ya(e,t){let n=Math.sign(t.clear-e.clear)||Math.sign(
t.y-e.y)||1,r=Pi(e,t,n);if(Math.abs(e.x-t.x)<.5)return{parts:[["M",[e.x,e.y]],["L",[t.x,t.y]]],at:r};let i=Math.max(10,Math.abs(t.clear-e.clear)/2)*n,s=["C",[e.
x,e.clear+i],[t.x,t.clear-i],[t.x,t.clear]];return{parts:[["M",[e.x,e.y]],["L",[e.x,e.clear]],s,["L",[t.x,t.y]]],at:r}}var Pi=(e,t,n)=>[[e.x,e.y+n*14],[t.x,t.y-
n*17],[e.x,e.y+n*8]];function va([e,t],n,r,i){let s=n[2],o=r==="left"?-1:1,a=i.walls[r==="left"?0:1]+o*(s+1)*Ci,u=r==="left"?1:-1,l=5+s%4*2.5,[c,h]=[e.clear+u*l,
t.clear-u*l],p=[[e.x,e.y],[e.x,c],[a,c],[a,h],[t.x,h],[t.x,t.y]];return{parts:wa(p),at:Pi(e,t,u)}}function wa(e){let t=[["M",e[0]]];for(let n=1;n<e.length-1;n++){
let[r,i,s]=[e[n-1],e[n],e[n+1]],o=Math.min(6,tr(r,i)/2,tr(i,s)/2);t.push(["L",Oi(i,r,o)],["Q",i,Oi(i,s,o)])}return t.push(["L",e[e.length-1]]),t}var tr=(e,t)=>Math.
hypot(e[0]-t[0],e[1]-t[1]);function Oi(e,t,n){let r=tr(e,t)||1;return[e[0]+(t[0]-e[0])*n/r,e[1]+(t[1]-e[1])*n/r]}function _a([e,t],n,r,i,s){let[o,a]=[e,t].map(b=>b<
0?void 0:r.get(n[b])),u=(b,v)=>b?b.y+b.block.height/2:v,[l,c]=[u(o,0),u(a,i.height)],h=(b,v,g,w)=>{if(!b)return{x:0,y:v,clear:v,sideways:!1};if(b.unit>=0)return{
x:b.x+w*Mt/2,y:v,clear:v,sideways:!0};let x=g>=v;return{x:b.x,y:x?b.y+b.block.height:b.y,clear:x?i.bottoms[b.row]:i.tops[b.row],sideways:!1}},[p,d]=[h(o,l,c,1),
h(a,c,l,-1)];if(o&&a&&o.unit<0&&a.unit<0&&o.row===a.row)return xa(p,d);let m=p.sideways&&d.sideways?(s*4%9-4)*4:0;return ka(p,d,m)}var xe=15;function xa(e,t){let n=Math.
max(e.clear,t.clear)+xe+6;return{parts:[["M",[e.x,e.y]],["L",[e.x,e.clear]],["C",[e.x,n],[t.x,n],[t.x,t.clear]],["L",[t.x,t.y]]],at:[[(e.x+t.x)/2,n]]}}function ka(e,t,n){
let r=Math.abs(t.y-e.y),i=Math.sign(t.y-e.y),s=[e.x,e.y],o=[t.x,t.y],a=[(e.x+t.x)/2,(e.y+t.y)/2];if(r<3||e.x===t.x&&!e.sideways&&!t.sideways)return{parts:[["M",
s],["L",o]],at:[a]};if(r<60&&(e.sideways||t.sideways)&&e.clear===e.y&&t.clear===t.y){let p=e.sideways?[a[0],e.y]:[e.x,a[1]],d=t.sideways?[a[0],t.y]:[t.x,a[1]];return{
parts:[["M",s],["C",p,d,o]],at:[a]}}let u=Math.min(24,r/2)*i,l=[["M",s]],[c,h]=[e.sideways?e.y+u:e.clear+i*xe,t.sideways?t.y-u:t.clear-i*xe];return e.sideways?l.
push(["C",[n,e.y],[n,e.y],[n,c]]):e.x===n?l.push(["L",[n,c]]):l.push(["L",[e.x,e.clear]],["C",[e.x,c],[e.x,c],[(e.x+n)/2,c]],["C",[n,c],[n,c],[n,c+i*Math.min(xe,
Math.abs(h-c)/2)]]),t.sideways?l.push(["L",[n,h]],["C",[n,t.y],[n,t.y],o]):t.x===n?l.push(["L",o]):l.push(["L",[n,h-i*Math.min(xe,Math.abs(h-c)/2)]],["C",[n,h],
[n,h],[(t.x+n)/2,h]],["C",[t.x,h],[t.x,h],[t.x,t.clear]],["L",o]),{parts:l,at:[.5,.35,.65,.2,.8].map(p=>[n,c+(h-c)*p])}}var ke={step:26,folded:38,title:38};function ir(e,t){
let n=new Set,r=new Set;for(let{unit:i,around:s,kind:o,w:a,h:u}of e.boxes){let l=o==="node"?t<=ke.step:o==="folded"?t<=ke.folded:t*1.25<=u&&t*4<=a;s!==null&&!(l&&
n.has(s))||(n.add(i),o==="open"&&r.add(i),s!==null&&r.delete(s))}return t>ke.title&&$a(e,n,r),{units:n,whole:r}}function $a({boxes:e},t,n){for(let r=e.length-1;r>
0;r--){let{unit:i,kind:s,level:o,w:a,h:u}=e[r],l=[];if(s!=="open"||!t.has(i)||n.has(i))continue;for(let h=r+1;e[h]?.level>o;h++)l.push(e[h]);let c=l.filter(h=>h.
around===i&&t.has(h.unit));if(!(c.length>1?c.reduce((h,p)=>h+p.w*p.h,0)*3>a*u:c.length&&!n.has(c[0].unit))){for(let h of l)t.delete(h.unit)&&n.delete(h.unit);n.
add(i)}}}function Se(e,{units:t,whole:n}){let r=F(e.within);return t.has(r)&&!n.has(r)&&(e.from===null||t.has(e.from))&&(e.to===null||t.has(e.to))}var Ze=96,Qe=class{cells=new Map;*near([
t,n,r,i]){for(let s=Math.floor(t/Ze);s<=Math.floor(r/Ze);s++)for(let o=Math.floor(n/Ze);o<=Math.floor(i/Ze);o++)yield`${s} ${o}`}add(t){for(let n of this.near(t)){
let r=this.cells.get(n);r?r.push(t):this.cells.set(n,[t])}}has([t,n,r,i]){for(let s of this.near([t,n,r,i]))for(let o of this.cells.get(s)??[])if(o[0]<r&&t<o[2]&&
o[1]<i&&n<o[3])return!0;return!1}};function Ma(e){let t=[];for(let[,n,r]of e.matchAll(/([MLQC])([^MLQC]*)/g)){let i=r.split(/[ ,]/).map(Number),s=t[t.length-1];
if(n==="M"||n==="L")t.push([i[0],i[1]]);else for(let o=1;o<=8;o++){let a=o/8,u=1-a,l=c=>n==="Q"?u*u*s[c]+2*u*a*i[c]+a*a*i[2+c]:u**3*s[c]+3*u*u*a*i[c]+3*u*a*a*i[2+
c]+a**3*i[4+c];t.push([l(0),l(1)])}}return t}function*Sa(e){let t=Ma(e.d),n=e.width/2+.5;for(let r=1;r<t.length;r++){let[[i,s],[o,a]]=[t[r-1],t[r]],u=i===o||s===
a,l=u?1:Math.ceil(Math.hypot(o-i,a-s)/8);for(let c=0;c<l;c++){let[h,p]=[c/l,(c+1)/l],d=[i+(o-i)*h,i+(o-i)*p],m=[s+(a-s)*h,s+(a-s)*p];yield[Math.min(...d)-n,Math.
min(...m)-n,Math.max(...d)+n,Math.max(...m)+n]}}}function*Ea(e,t,n){let{x:r,y:i,w:s,h:o,unit:a}=t,u=(a<0?e.marked.has(-a-1):e.marks.has(a))?8:0;if(t.kind==="fol\
ded")yield[r-8,i-3-u,r+s+8,i+o+8];else if(t.kind==="open"){yield[r,i-3,r+s,i+Math.max(ue,n*1.35)+2];for(let[l,c]of[[r,r],[r+s,r+s]])yield[l-1,i,c+1,i+o];yield[r,
i+o-1,r+s,i+o+1]}else{let{left:l,right:c}=rn(e,t.unit),h=p=>p.length?Math.max(...p.map(d=>fe(d.text)))+6:0;yield[r-h(l)-1,i-1-u,r+s+h(c)+4,i+o+1]}}var Je=class{constructor(t,n,r,i){
this.size=r;this.textOf=i;for(let s of n.boxes)for(let o of Ea(t,s,r))this.taken.add(o);for(let s of n.lines)for(let o of Sa(s))this.taken.add(o);this.labels=this.
placed(n.lines.filter(s=>s.side!=="bridge"),this.taken)}size;textOf;taken=new Qe;labels;of(t){return this.placed(t,new Qe)}placed(t,n){let{size:r,taken:i}=this,
s=r*.62,o=[];for(let a of t){let u=z(this.textOf(a),r,a.side==="bridge"),l=5+a.width/2;if(!u)continue;let c=({x:d,y:m})=>[d-2,m-s-2,d+u+2,m+3],p=a.at.flatMap(([
d,m])=>[d+l,d-l-u].map(b=>({line:a,x:b,y:m+s/2}))).find(d=>!i.has(c(d))&&!n.has(c(d)));p&&(n.add(c(p)),o.push(p))}return o}};var Oa=28;function Ti(e,t=1/0){let n=new Set,r={open:n,turn:new Map},i=[0],[s,o]=[1,0],a=l=>e.frame(le(e,r,l)).units.length,u=l=>e.frame(l).counts[0]+e.frame(l).
counts[1];for(;i.length;){i.sort((p,d)=>u(d)-u(p));let l=i.shift();if(l!==0&&(s+a(l)>Oa||u(l)<o))break;n.add(e.alike[l]);let{left:c,right:h}=sn(e,r);if(l!==0&&(h-
c)*nn>t){n.delete(e.alike[l]),o=Math.max(o,u(l)/2);continue}s+=a(l);for(let p of e.frame(le(e,r,l)).units)p<0&&i.push(-p-1)}return r}function Li(e,t,n){let r=new Set;
return e.data.frames.forEach((i,s)=>{e.depth[s]<n&&r.add(e.alike[s])}),{open:r,turn:t.turn}}function Ii(e,t){let n=e.deepest+1;return e.data.frames.forEach((r,i)=>{
!e.isTurn(i)&&!Kt(e,t,i)&&(n=Math.min(n,e.depth[i]))}),n}function Ui(e,t,n){let r=new Set(t.open),i=e.alike[n];return r.delete(i)||r.add(i),{open:r,turn:t.turn}}
function Di(e,t,n){let r=new Set(t.open),i=s=>{r.add(e.alike[s]);for(let o of e.frame(s).units)o<0&&i(-o-1)};return i(n),{open:r,turn:t.turn}}function Bi(e,t,n,r){
let i=e.frame(n).units.length-1;return{open:t.open,turn:new Map(t.turn).set(e.alike[n],Math.max(0,Math.min(i,r)))}}function on(e,t,n){let[r,i]=[new Set(t.open),
new Map(t.turn)],s=n;for(let o of e.above(n))e.frame(o).kind==="loop"&&i.set(e.alike[o],e.framePlace[-s-1]),r.add(e.alike[o]),s=F(o);return{open:r,turn:i}}function St(e,t,n){
let r=F(0);for(let i of[...e.above(n).reverse().map(F),n])t.byUnit.has(i)&&(r=i);return r}function sr(e,t,n){let r=[`pair=${e}`];t!==null&&r.push(t<0?`frame=${-t-
1}`:`step=${t}`),r.push(`open=${Na([...n.open])}`);let i=[...n.turn].filter(([,s])=>s).map(([s,o])=>`${s}:${o}`);return`#${[...r,...i.length?[`turn=${i.join(".")}`]:
[]].join("&")}`}function Na(e){let t=[];for(let n of e.sort((r,i)=>r-i)){let r=t.at(-1);r&&r[1]===n-1?r[1]=n:t.push([n,n])}return t.map(([n,r])=>n===r?`${n}`:`${n}\
-${r}`).join(".")}function zi(e,t){let n=new Map(e.replace(/^#/,"").split("&").map(l=>l.split("=",2))),r=(l,c)=>{let h=n.get(l),p=Number(h);return h&&/^\d+$/.test(
h)&&p<c?p:null},i=r("pair",t.length)??0,s=t[i],[o,a]=[r("step",s.count),r("frame",s.data.frames.length)],u=o??(a===null?null:F(a));return{pair:i,unit:u,opened:n.
has("open")?Ca(n.get("open"),n.get("turn")??""):null}}function Ca(e,t){let n=new Set,r=new Map;for(let[,i,s]of e.matchAll(/(\d{1,6})(?:-(\d{1,6}))?/g))for(let o=Number(
i);o<=Number(s??i);o++)n.add(o);for(let[,i,s]of t.matchAll(/(\d{1,6}):(\d{1,6})/g))r.set(Number(i),Number(s));return{open:n,turn:r}}function ar(e,t){let{nodes:n,saved:r}=e.data,i=e.isForward(t),s=i?e.pulled[t]:n.partners[t],o=[...new Set(n.inputs[t])],a=i?(e.savedFrom.get(t)??[]).map(([u,l])=>({
value:t,users:e.usersOf(u),bytes:l})):r.filter(([,u])=>o.includes(u)).map(([u,,l])=>({value:u,users:[t],bytes:l}));return{partners:s,inputs:o,users:e.usersOf(t),
saved:a}}function or(e,t,n,r,i){let s=[],o=m=>{let b=St(e,t,m),v=e.above(b).filter(g=>t.byUnit.has(-g-1));return{shown:b,frames:v}},[a,u]=[o(n),o(r)],l=a.frames.
find(m=>u.frames.includes(m));if(l===void 0||a.shown===u.shown)return s;let c=(m,b,v)=>{let g=t.lineOf.get(nr(m,i,b,v));g&&s.push(g)},h=m=>m.frames.slice(0,m.frames.
indexOf(l)),p=a.shown;for(let m of h(a))[p]=[-m-1,c(m,p,null)];let d=u.shown;for(let m of h(u))[d]=[-m-1,c(m,null,d)];return c(l,p,d),s}function Fi(e,t,n){let r=new Map,
i=new Set,s=new Set,o=St(e,t,n),a=(c,h)=>{let p=St(e,t,c);s.add(c),p!==o&&!r.has(p)&&t.byUnit.get(p).kind!=="open"&&r.set(p,h)};if(r.set(o,"self"),n<0){for(let c of t.
lines)(c.from===n||c.to===n)&&i.add(c);return{units:r,lines:i,steps:s}}let u=ar(e,n),l=e.isForward(n)?"left":"right";u.partners.forEach(c=>a(c,"partner"));for(let{
value:c,users:h}of u.saved)for(let p of h){if(c<e.count){a(c,"saved");for(let d of or(e,t,c,p,"bridge"))i.add(d)}a(p,"saved")}for(let c of u.inputs)if(!(c>=e.count)){
a(c,"input");for(let h of or(e,t,c,n,l))i.add(h)}for(let c of u.users){a(c,"user");for(let h of or(e,t,n,c,l))i.add(h)}return{units:r,lines:i,steps:s}}function yt({model:e,value:t,go:n}){return t<0||t>=e.count?f("span",{class:"port",title:e.specOf(t),children:f("bdi",{children:e.nameOf(t)})}):f("button",{class:`\
link ${e.isForward(t)?"forward":"backward"}`,title:e.call(t),onClick:()=>n(t),children:f("bdi",{children:e.nameOf(t)})})}function he({model:e,values:t,go:n,most:r=8}){
return t.length?f("span",{class:"links",children:[t.slice(0,r).map(i=>f(yt,{model:e,value:i,go:n},i)),t.length>r&&f("span",{class:"soft",children:["and ",E(t.length-
r)," more"]})]}):f("span",{class:"soft",children:"none"})}var ur=30;function an({share:e,side:t}){return f("svg",{class:`bar ${t}`,width:ur,height:"8","aria-hid\
den":"true",children:[f("rect",{width:ur,height:"8",rx:"2",class:"track"}),f("rect",{width:Math.max(e>0?1:0,ur*Math.min(1,e)),height:"8",rx:"2"})]})}var Aa=60,ft=class extends W{state={
sort:this.props.sort,most:Aa};sorted(){let[t,n]=this.state.sort,{value:r}=this.props.columns[t],i=new Map(this.props.rows.map(s=>[s,r(s)]));return[...this.props.
rows].sort((s,o)=>{let[a,u]=[i.get(s),i.get(o)];return n*(a<u?-1:a>u?1:0)})}render({columns:t,rows:n,empty:r}){if(!n.length)return f("p",{class:"soft",children:r});
let{sort:[i,s],most:o}=this.state,a=t.map(l=>typeof l.value(n[0])=="number"),u=(l,c)=>f("th",{class:a[c]?"r":"","aria-sort":i===c?s>0?"ascending":"descending":void 0,
children:f("button",{onClick:()=>this.setState({sort:[c,i===c?s>0?-1:1:a[c]?-1:1]}),children:l.name})},c);return f("div",{class:"table",children:[f("table",{children:[
f("thead",{children:f("tr",{children:t.map(u)})}),f("tbody",{children:this.sorted().slice(0,o).map((l,c)=>f("tr",{children:t.map((h,p)=>f("td",{class:a[p]?"r":"",
children:h.cell(l)}))},c))})]}),n.length>o&&f("button",{class:"more",onClick:()=>this.setState({most:o*5}),children:["show more: ",E(o)," of ",E(n.length)]})]})}};function Ri(e){let{selected:t}=e;return t===null?f(Pa,{...e}):t<0?f(La,{...e,id:-t-1}):f(Ia,{...e,node:t})}function lr({rows:e}){return f("dl",{children:e.map(([
t,n])=>n!==""&&n!==null&&[f("dt",{children:t},t),f("dd",{children:n},`${t} `)])})}function Pa({page:e,model:t}){let[n,r,,i,s]=t.frame(0).counts,[o,a]=t.flops[0];
return f("div",{class:"panel",children:[f("h2",{children:f("bdi",{children:e.title})}),f(lr,{rows:[["Forward",`${Q(n,"step")}${we(o,i)}`],["Backward",r?`${Q(r,"\
step")}${we(a,s)}`:"this graph has no backward"],["Saved",Ta(t)],["Peak",t.timed?A(t.data.memory.peak[1]):""],["Changes",jn(t,0)],...e.facts.map(([u,l])=>[u,f("\
bdi",{children:l})])]}),e.notes.map(u=>f("p",{class:"remark",children:f("bdi",{children:u})},u)),f("p",{class:"soft",children:"The forward runs down on the left\
, the backward up on the right. Bands between them are saved tensors. Click a frame to open it, a step to see what belongs to it."})]})}function Ta(e){let{own:[
t,n],rest:[r,i]}=e.savedSum(),s=r?`. ${Q(r,"more value")}, ${A(i)}, ${r===1?"is":"are"} the caller's, or ${r===1?"shares":"share"} memory with these`:"";return t||
r?`${A(n)} in ${Q(t,"value")}${s}`:A(0)}function La({model:e,opened:t,id:n,go:r,onFold:i,onOpenAll:s,onTurn:o}){let a=e.frame(n),[u,l,c,h,p]=a.counts,[d,m]=e.flops[n],
b=a.kind==="loop"?zt(e,t,n):-1,v=a.kind==="loop"?[]:[...e.inside(n)].filter(g=>e.data.nodes.product[g]>0).sort((g,w)=>e.data.nodes.product[w]-e.data.nodes.product[g]).
slice(0,6);return f("div",{class:"panel",children:[f("h2",{children:f("bdi",{children:[e.path(n)||e.title(n),b>=0?` × ${a.units.length}`:""]})}),f("p",{class:"\
buttons",children:[f("button",{onClick:()=>i(n),children:Kt(e,t,n)?"close":"open"}),f("button",{onClick:()=>s(n),children:"open all inside"})]}),b>=0&&f("p",{class:"\
turns",children:[f("button",{"aria-label":"previous turn",disabled:b===0,onClick:()=>o(n,b-1),children:"‹"}),f("label",{children:["turn ",f("input",{type:"num\
ber",min:1,max:a.units.length,value:b+1,onChange:g=>o(n,Number(g.currentTarget.value)-1)})," of ",E(a.units.length)]}),f("button",{"aria-label":"next turn",disabled:b===
a.units.length-1,onClick:()=>o(n,b+1),children:"›"}),f("bdi",{class:"soft",children:e.path(-a.units[b]-1)})]}),f(lr,{rows:[["Kind",a.kind==="loop"?`loop of ${E(
a.units.length)}`:a.kind],[a.kind==="module"?"Class":"Code",a.label?f("bdi",{children:e.text(a.label)}):""],["Forward",`${Q(u,"step")}${we(d,h)}`],["Backward",`${Q(
l,"step")}${we(m,p)}`],["Saved",A(c)],["Changes",jn(e,n)],["Largest products",v.length?f(he,{model:e,values:v,go:r}):""],["Inside",a.parent>=0?f("button",{class:"\
link",onClick:()=>r(F(a.parent)),children:f("bdi",{children:e.title(a.parent)})}):""]]})]})}function Ia({page:e,model:t,node:n,go:r,jump:i}){let{nodes:s,sources:o}=t.
data,a=ar(t,n),u=t.isForward(n),l=o[s.source[n]],c=t.data.ports.filter(p=>!p.into&&p.role!=="saved"&&p.value===n),h=t.above(n).filter(p=>p>0).reverse();return f(
"div",{class:"panel",children:[f("h2",{class:u?"forward":"backward",children:f("bdi",{children:t.nameOf(n)})}),f("p",{class:"soft",children:`${u?"Forward":"Back\
ward"}, step ${E(n+1)} of ${E(t.count)}`}),f("pre",{children:f("bdi",{children:t.call(n)})}),t.marks.has(n)&&f(Zn,{page:e,model:t,node:n,jump:i}),f(lr,{rows:[["\
Operator",`${t.text(s.op[n])} (${t.kinds[n]})`],["Type",f("code",{children:t.text(s.spec[n])})],[u?"In the backward":"In the forward",f(he,{model:t,values:a.partners,
go:r})],["Echo",t.echoOf(n)],["Inputs",f(he,{model:t,values:a.inputs,go:r})],["Users",f(he,{model:t,values:a.users,go:r})],["Leaves as",c.length?f("span",{class:"\
links",children:c.map(p=>f("span",{class:"port",title:t.text(p.spec),children:[p.role," ",f("bdi",{children:t.text(p.name)})]}))}):""],["Saved",a.saved.length?a.
saved.map(p=>f("div",{children:[A(p.bytes)," ",u?"for ":"from ",u?f(he,{model:t,values:p.users,go:r}):f(yt,{model:t,value:p.value,go:r})]},p.value)):""],["FLOPs",
s.product[n]||s.other[n]?[s.product[n]&&`${se(s.product[n])} in products`,s.other[n]&&`${se(s.other[n])} in others`].filter(Boolean).join(", "):""],["Bytes",t.timed?
`${A(s.read[n])} read, ${A(s.written[n])} written${t.isView(n)?", a view":s.memory[n]?`, ${A(s.memory[n])} new`:""}`:""],["Live",t.timed?A(t.data.memory.live[n]):
""],["Source",l?f("span",{children:[f("bdi",{children:t.lineOf(n)}),l[2]?f("span",{class:"soft",children:[" in ",f("bdi",{children:t.text(l[2])})]}):"",f("code",
{class:"source",children:f("bdi",{children:t.text(l[3])})})]}):""],["Module",l&&t.moduleOf(n)?f("bdi",{children:t.moduleOf(n)}):""],["Within",h.length?f("span",
{class:"links",children:h.map(p=>f("button",{class:"link",onClick:()=>r(F(p)),children:f("bdi",{children:t.title(p)})},p))}):""],...Ua(t,n)]})]})}function Ua(e,t){
let n=e.data.stats?.value.indexOf(t)??-1;if(n<0)return[];let[r,i,s,o,a,u,l,c,h]=e.data.stats.rows[n];return[["NaN and Inf",f("span",{class:l||c?"alarm":"",children:`${E(
l)} NaN, ${E(c)} Inf of ${E(r)}`})],["Values",`${Dt(i)} to ${Dt(s)}, mean ${Dt(o)}, deviation ${Dt(a)}, norm ${Dt(u)}, ${E(h)} zero`]]}var Vi=`/* The picture alone: also inside exported files. Okabe and Ito's colours, which colour-blind people tell apart. */
:root { --fwd: #0072b2; --fwd-soft: #e6f1f8; --fwd-line: #8fbcd9; --bwd: #b04c00; --bwd-soft: #fcefe4; --bwd-line: #e5b38c;
  --save: #00765a; --save-soft: #cdebe1; --ink: #1c2127; --soft: #56606b; --line: #cfd6de; --paper: #ffffff; --band: #f6f8fa;
  --grey: #eef0f3; --found: #f5d000; --found-ink: #3a3200; --alarm: #c0182b; --alarm-ink: #ffffff; --mark: #8a2f9e; }
@media (prefers-color-scheme: dark) { :root { --fwd: #6fbdec; --fwd-soft: #15293a; --fwd-line: #386a8c; --bwd: #f0a35e; --bwd-soft: #352415;
  --bwd-line: #8a5a2f; --save: #45cfa5; --save-soft: #14453a; --ink: #e7eaee; --soft: #a4afba; --line: #38414c; --paper: #14181d; --band: #1a1f26;
  --grey: #262c34; --found: #d7b600; --found-ink: #1c1900; --alarm: #ff6b78; --alarm-ink: #23060a; --mark: #dd9cec; } }
@media print { :root { --fwd: #0072b2; --fwd-soft: #e6f1f8; --fwd-line: #8fbcd9; --bwd: #b04c00; --bwd-soft: #fcefe4; --bwd-line: #e5b38c;
  --save: #00765a; --save-soft: #cdebe1; --ink: #1c2127; --soft: #56606b; --line: #cfd6de; --paper: #ffffff; --band: #f6f8fa; --grey: #eef0f3; --mark: #8a2f9e; \
} }
.picture { font: 11.5px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; background: var(--paper); }
.picture text { fill: var(--ink); unicode-bidi: isolate; user-select: none; }
.picture .soft { fill: var(--soft); }
.picture .paper { fill: var(--paper); }
.line path, path.band { fill: none; stroke-linecap: butt; }
.line.left path { stroke: var(--fwd-line); } .line.right path { stroke: var(--bwd-line); stroke-dasharray: 6 2.5; }
.line.bridge path { stroke: var(--save); opacity: .28; }
.line.left.bright path { stroke: var(--fwd); } .line.right.bright path { stroke: var(--bwd); } .line.bridge.bright path { opacity: .85; }
.picture .label { fill: var(--soft); } .picture .label.bridge { fill: var(--save); font-weight: 600; } .dots circle { fill: var(--save); stroke: var(--paper); s\
troke-width: 1; }
.tip.left path { fill: var(--fwd-line); } .tip.right path { fill: var(--bwd-line); }
.step > rect { stroke-width: 1.1; } .step.forward > rect { fill: var(--fwd-soft); stroke: var(--fwd); }
.step.backward > rect { fill: var(--bwd-soft); stroke: var(--bwd); }
.step.view > rect, .step.guard > rect { fill: var(--grey); stroke: var(--line); } .picture .step.view > text { fill: var(--soft); }
.step .kept { fill: var(--save); stroke: var(--paper); stroke-width: 1; }
.step[role], .folded, .head, .turn { cursor: pointer; }
.picture .pill rect { fill: var(--paper); stroke: var(--line); stroke-width: 1; } .picture .pill text { text-anchor: middle; fill: var(--soft); }
.picture .pill.gradient rect { fill: var(--bwd); stroke: var(--bwd); } .picture .pill.gradient text { fill: var(--paper); font-weight: 600; }
.picture .pill.mutation rect { fill: var(--paper); stroke: var(--fwd); stroke-dasharray: 2 1.5; } .picture .pill.mutation text { fill: var(--fwd); }
.picture .pill.input rect, .picture .pill.tangent rect { stroke: var(--soft); } .picture .pill.input text, .picture .pill.tangent text { fill: var(--ink); }
.picture .pill.output rect { fill: var(--fwd); stroke: var(--fwd); } .picture .pill.output text { fill: var(--paper); font-weight: 600; }
.frame .body, .frame .hit, .half rect, .step > rect { vector-effect: non-scaling-stroke; }
.frame.open .body { fill: var(--paper); stroke: var(--line); stroke-width: 1.2; } .frame.open.odd .body { fill: var(--band); }
.tint { opacity: .35; } .whole .tint { opacity: .8; } .frame.open.whole .body { stroke: var(--soft); } .tint.forward { fill: var(--fwd-soft); } .tint.backward {\
 fill: var(--bwd-soft); }
.head rect { fill: var(--grey); } .head:hover rect { fill: var(--line); }
.picture .title { font-weight: 600; } .picture .sign { fill: var(--soft); font-weight: 400; }
.folded .hit { fill: var(--paper); stroke: var(--line); } .folded .hit.odd { fill: var(--band); } .folded .half rect { stroke-width: 1.3; }
.half.forward rect { fill: var(--fwd-soft); stroke: var(--fwd); } .half.backward rect { fill: var(--bwd-soft); stroke: var(--bwd); }
.folded .half.empty rect { fill: none; stroke: var(--line); stroke-dasharray: 3 3; } .folded .half rect.behind { fill: var(--paper); opacity: .7; }
.folded .band { stroke: var(--save); opacity: .6; fill: none; } .picture .size { fill: var(--save); text-anchor: middle; font-weight: 600; }
.folded.steps .half rect, .folded.line .half rect { stroke-width: 1; }
.stepper .plate { fill: var(--paper); stroke: var(--line); } .picture .stepper text { text-anchor: middle; font-weight: 600; }
.turn rect { fill: transparent; } .turn:hover rect { fill: var(--grey); } .turn.off { display: none; }
.picture .step.added > rect, .picture .step.changed > rect, .picture .step.removed > rect { stroke: var(--mark); stroke-width: 2.4; } .picture .step.removed > r\
ect { stroke-dasharray: 5 3; }
.changemark { pointer-events: none; } .picture .changemark rect { fill: var(--mark); stroke: var(--paper); stroke-width: 1; } .picture .changemark text { fill: \
var(--paper); font-weight: 700; text-anchor: middle; }
.badmark rect { fill: var(--alarm); stroke: none; } .picture .badmark text { fill: var(--alarm-ink); font-weight: 700; text-anchor: middle; }
.picture .step.bad > rect { stroke: var(--alarm); stroke-width: 2.4; }
.picture .step.match > rect { stroke: var(--found); stroke-width: 3; } .found rect { fill: var(--found); } .picture .found text { fill: var(--found-ink); font-w\
eight: 700; text-anchor: middle; }
.ring { fill: none; pointer-events: none; stroke-width: 2.5; stroke: var(--ink); }
.picture .is-self > rect:not(.hit), .picture .is-self > .half > rect:not(.behind) { stroke: var(--ink); stroke-width: 2.6; }
.picture .is-partner > rect:not(.hit), .picture .is-partner > .half > rect:not(.behind) { stroke-width: 2.6; }
.picture .is-partner.forward > rect { fill: var(--fwd-line); } .picture .is-partner.backward > rect { fill: var(--bwd-line); }
.picture .is-partner .soft, .picture .is-partner.view > text { fill: var(--ink); }
.picture .is-input > rect:not(.hit), .picture .is-user > rect:not(.hit) { stroke-width: 2; }
.picture .is-saved > rect:not(.hit), .picture .is-saved > .half > rect:not(.behind) { stroke: var(--save); stroke-width: 2.4; }
`;var Ba=9.05;function hr(e){let t=Ba/e;return{least:t,near:t<=ce}}var Et=(e,{least:t})=>Math.max(e,t),Wi=({least:e})=>Math.max(1,e/ce),it=.36;function za({line:e,
detail:t}){let n=e.side==="bridge"||!t.near?void 0:`url(#tip-${e.side})`;return f("g",{class:`line ${e.side}`,"data-line":e.key,children:f("path",{d:e.d,"stroke\
-width":e.width*Wi(t),"marker-end":n})})}function dr(e){return e.side==="bridge"?e.label==="0"?"":A(Number(e.label)):Wt(e.label,150,10)}function un({least:e}){return[
10.5,12,ce].find(t=>e<=t)??ce}function pr({label:{line:e,x:t,y:n},size:r,bright:i}){return f("text",{class:`label ${e.side}${i?" bright":""}`,x:t,y:n,"font-size":r,
children:dr(e)})}function mr(e){let{box:t}=e;return t.kind==="node"?f(Fa,{...e}):f(Ga,{...e})}function Fa({model:e,box:t,detail:n,marks:r,role:i}){let s=t.unit,
o=e.isForward(s)?"forward":"backward",a=e.bad.get(s),u=e.marks.get(s)?.kind,l=Et(e.isView(s)?10.5:11.5,n),c=Math.max(e.isView(s)?en:er,l+5),h=t.y+(t.h-c)/2,p=h+
c/2+l*it,d=["step",o,e.isView(s)&&"view",e.kinds[s]==="guard"&&"guard",a&&"bad",u,i,r.steps?.has(s)&&"match"],m=e.shorts[s],b=e.nameOf(s),v=m==="getitem"?b:Ra(b,
m),g=t.w-13,w=m==="getitem"?"":Wt(m,g,l),x=g-z(w,l),M=w===m||!w?Wt(v,x,l):"";return f("g",{class:d.filter(Boolean).join(" "),"data-unit":s,role:"button","aria-l\
abel":`${m} ${b}${u?`, ${u}`:""}`,children:[f("rect",{x:t.x,y:h,width:t.w,height:c,rx:e.isView(s)?3:5}),f("text",{x:t.x+7,y:p,"font-size":l,children:[w,M&&f("ts\
pan",{class:"soft",children:M})]}),e.isSaved(s)&&f("circle",{class:"kept",cx:t.x+t.w,cy:t.y+t.h/2,r:3}),a&&f(qi,{x:t.x+t.w-26,bottom:h+3,bad:a,detail:n}),u&&f(gr,
{x:t.x,y:h,text:Bt[u],detail:n}),n.near&&f(Va,{model:e,box:t,detail:n})]})}function Ra(e,t){let n=t.replace(/^_+/,"");return e===t||e===n?"":e.startsWith(n)?e.slice(
n.length):` ${e}`}function Hi({kind:e,x:t,bottom:n,text:r,detail:i}){let s=Et(9.5,i),o=z(r,s,!0)+s,a=s*1.4,u=n-a;return f("g",{class:e,children:[f("rect",{x:t,y:u,
width:o,height:a,rx:a/2}),f("text",{x:t+o/2,y:u+a/2+s*it,"font-size":s,children:r})]})}function qi({x:e,bottom:t,bad:n,detail:r}){return f(Hi,{kind:"badmark",text:n.
nan?"NaN":"Inf",x:e,bottom:t,detail:r})}function gr({x:e,y:t,text:n,detail:r}){let i=Et(11,r),s=i*1.36,o=Math.max(s,z(n,i,!0)+i*.64),a=n.length>1?0:-o/2;return f(
"g",{class:"changemark",transform:`translate(${e} ${Math.min(t,t+7-s/2)})`,children:[f("rect",{x:a,y:-s/2,width:o,height:s,rx:s/2}),f("text",{x:a+o/2,y:i*it,"fo\
nt-size":i,children:n})]})}function cr(e){return bt.filter(t=>e[t]).map(t=>`${Bt[t]}${e[t]}`).join(" ")}function Va({model:e,box:t,detail:n}){let{left:r,right:i}=rn(
e,t.unit),s=t.y+t.h/2,o=(a,u)=>a.map((l,c)=>{let h=fe(l.text),p=u<0?t.x-5-h:t.x+t.w+5,d=s+(c-a.length/2)*tn;return f(ji,{...l,x:p,y:d,wide:h,detail:n})});return f(
"g",{children:[o(r,-1),o(i,1)]})}function Ga({model:e,box:t,detail:n,marks:r,role:i}){let s=-t.unit-1,o=e.frame(s),[a,u,l]=o.counts,[c,h]=[t.mid-J,t.mid+J],p=t.
y+t.h/2,d=rr(e)(l),{near:m}=n,b=o.kind==="loop",v=r.matches?.get(s),g=e.marked.get(s),w=Et(12.5,n),x=Et(10.5,n),M=l>0&&(m||a>0&&u>0),L=l>0&&m&&z(A(l),x,!0)<=2*J-
4,O=(rt,V,j,G,q)=>{let y=G?Q(G,"step"):"no step",k=q>0?Ut(q):"",_=fr(e,s,j-18,w),$=z(`${y}   ${k}`,x)<=j-20;return!G&&!m?null:f("g",{class:`half ${rt}${G?"":" e\
mpty"}`,children:[b&&[6,3].map(S=>f("rect",{class:"behind",x:V+(rt==="forward"?-S:S),y:t.y+S,width:j,height:t.h,rx:6})),f("rect",{x:V,y:t.y,width:j,height:t.h,rx:6}),
(G||rt==="forward")&&f("text",{class:"title",x:V+10,y:m?t.y+20:p+w*it,"font-size":w,children:_}),m&&f("text",{class:"soft",x:V+10,y:G||rt==="forward"?t.y+40:p+x*
it,"font-size":x,children:y}),m&&k&&$&&f("text",{class:"soft",x:V+j-10,y:t.y+40,"text-anchor":"end","font-size":x,children:k})]})},[B,Z]=e.flops[s];return f("g",
{class:`frame folded ${o.kind} ${i??""} ${v?"match":""}`,"data-unit":t.unit,role:"button","aria-expanded":"false","aria-label":br(e,s),children:[f("rect",{class:t.
level%2?"hit":"hit odd",x:t.x,y:t.y,width:t.w,height:t.h,rx:6}),O("forward",t.x,c-t.x,a,B),O("backward",h,t.x+t.w-h,u,Z),M&&f("path",{class:"band",d:`M${c} ${p}\
H${h}`,"stroke-width":d}),L&&f("text",{class:"size",x:t.mid,y:p-d/2-4,"font-size":x,children:A(l)}),M&&f(Ki,{points:[[c,p],[h,p]],detail:n}),e.badFrames.has(s)&&
f(qi,{x:c-36,bottom:t.y+4,bad:{nan:1,inf:0},detail:n}),g&&f(gr,{x:h+8,y:t.y,text:cr(g),detail:n}),v&&f(Hi,{kind:"found",x:t.x+4,bottom:t.y+6,text:String(v),detail:n})]})}
function Ki({points:e,detail:t}){return f("g",{class:"dots",children:e.map(([n,r])=>f("circle",{cx:n,cy:r,r:3*Wi(t)},`${n} ${r}`))})}function br(e,t){let n=e.frame(
t),r=e.title(t),i=e.text(n.label),s=n.kind==="loop"?` × ${n.units.length}`:"";return`${r}${s}${i&&i!==r?`  ${i}`:""}`}function fr(e,t,n,r,i=!1){let s=e.frame(t),
o=e.text(s.label),a=e.title(t),u=/^\d/.test(a),l=s.kind==="loop"?` × ${s.units.length}`:"",c=o===a?"":o||(u?Wa(e,t):""),h=s.kind==="line"&&c!=="",p=i&&u?e.path(
s.parent):"",d=(p?`${p}.${a}`:a).split(/\.(?=[A-Za-z_])/),m=s.kind==="line"?[a]:d.map((x,M)=>(M?"…":"")+d.slice(M).join(".")).concat(a),b=/\.\d[^.]*$/.test(a)?
[...a].map((x,M)=>`…${a.slice(M+1)}`):[],v=[...c?m.map(x=>`${x+l}  ${c}`):[],...h?[]:[...m,...b].map(x=>x+l)],g=x=>z(x,r,!0)<=n,w=a.replace(/^.*:/,"line ");return Wt(
v.find(g)??(h?g(`${w}  code`)?`${w}  ${c}`:g(w)?w:a.replace(/^.*:/,":"):a+l),n,r,!0)}function Wa(e,t){let{product:n,other:r}=e.data.nodes,i=o=>n[o]+r[o];if(e.frame(
t).counts[0]>8)return"";let s=[...e.inside(t)].filter(o=>e.isForward(o)&&!e.isView(o)).sort((o,a)=>i(a)-i(o));return s.length?e.shorts[s[0]].replace(/^_*(native_)?|_legit.*$/g,
""):""}function Xi(e,t,n){return z(br(e,-t.unit-1).slice(0,6),n.least,!0)<Yi(e,t)-20}function Yi(e,{unit:t,x:n,w:r,mid:i}){return Math.min(i-n,e.frame(-t-1).counts[1]>
0?n+r-i:1/0)-J}function Ha({box:e,whole:t,halved:n,back:r}){let i=e.mid-J-e.x;return f("g",{class:`frame open ${e.level%2?"odd":""}${t?" whole":""}`,"data-unit":e.
unit,children:[f("rect",{class:"body",x:e.x,y:e.y,width:e.w,height:e.h,rx:8}),n&&f("rect",{class:"tint forward",x:e.x,y:e.y,width:i,height:e.h,rx:8}),n&&r&&f("r\
ect",{class:"tint backward",x:e.mid+J,y:e.y,width:e.x+e.w-e.mid-J,height:e.h,rx:8})]})}function qa({model:e,opened:t,box:n,detail:r,whole:i}){let s=-n.unit-1,o=e.
frame(s),a=e.marked.get(s),{near:u}=r,l=Et(10.5,r),c=i&&Xi(e,n,r),h=c?Yi(e,n):n.w,p=Et(12.5,r),d=fr(e,s,h-18,p,i),m=i?Math.max(p,Math.min(n.h*.5,r.least*1.3,(h-
20)/Math.max(1,z(d,1,!0)))):p,b=o.kind==="loop",v=u&&o.counts[2]>0?`${A(o.counts[2])} saved`:"",g=u?"− ":"",w=Math.max(ue,m*1.35),x=i?n.x+h-4:b&&u?n.mid-70:n.
x+n.w-10-(v?z(v,l)+14:0),M=b&&u?n.mid+70+(a?z(cr(a),11,!0)+34:0):n.x+z(g,m)+40,L=x-n.x-14-z(g,m),O=i?d:m<=ke.title?fr(e,s,L,m):"";return f("g",{class:"frame","d\
ata-unit":n.unit,children:[f("g",{"data-fold":s,class:"head",role:"button","aria-expanded":"true","aria-label":`close ${br(e,s)}`,children:[(O||u)&&!i&&f("rect",
{x:n.x+.6,y:n.y+.6,width:n.w-1.2,height:w,rx:8}),O&&f("text",{class:"title",x:n.x+10,y:i?n.y+n.h/2+m*it:n.y+w/2+m*it,"font-size":m,"data-slack":i?void 0:L-z(O,m,
!0),children:[g&&f("tspan",{class:"sign",children:g}),O]}),c&&o.counts[1]>0&&f("text",{class:"title",x:n.mid+J+10,y:n.y+n.h/2+m*it,"font-size":m,children:d}),v&&
!i&&M+z(v,l)<n.x+n.w-10&&f("text",{class:"soft",x:n.x+n.w-10,y:n.y+w/2+l*it,"text-anchor":"end","font-size":l,children:v})]}),b&&u&&!i&&f(Ka,{model:e,opened:t,id:s,
detail:r,x:n.mid,y:n.y}),b&&a&&u&&f(gr,{x:n.mid+72,y:n.y+12,text:cr(a),detail:r}),s===0&&u&&f(Gi,{model:e,role:"input",middle:n.mid-ae,y:n.y-23,detail:r}),s===0&&
u&&f(Gi,{model:e,role:"tangent",middle:n.mid+ae,y:n.y+n.h+7,detail:r})]})}function Gi({model:e,role:t,middle:n,y:r,detail:i}){let s=e.entering.filter(l=>l.role===
t),a=s.slice(0,s.length>3?2:3).map(l=>({text:e.text(l.name),title:`${t} ${e.text(l.name)} ${e.text(l.spec)}`}));s.length>3&&a.push({text:`+${s.length-2}`,title:s.
slice(2).map(l=>e.text(l.name)).join(`
`)});let u=n-a.reduce((l,c)=>l+fe(c.text)+4,-4)/2;return f("g",{children:a.map(l=>{let c=fe(l.text),h=u;return u+=c+4,f(ji,{...l,role:t,y:r,wide:c,detail:i,x:h})})})}
function ji({x:e,y:t,wide:n,text:r,title:i,role:s,detail:o}){let a=Et(10,o),u=tn-2;return f("g",{class:`pill ${s}`,children:[f("title",{children:i}),f("rect",{x:e,
y:t+1,width:n,height:u,rx:u/2}),f("text",{x:e+n/2,y:t+1+u/2+a*it,"font-size":a,children:Wt(r,n-8,a,s==="gradient"||s==="output")})]})}function Ka({model:e,opened:t,
id:n,x:r,y:i,detail:s}){let o=Et(11.5,s),a=zt(e,t,n),{units:u}=e.frame(n),l=u[a],c=(h,p,d,m)=>f("g",{class:`turn${h<0||h>=u.length?" off":""}`,"data-loop":n,"da\
ta-turn":h,role:"button","aria-label":m,children:[f("rect",{x:p-11,y:i+3,width:22,height:18,rx:4}),f("text",{x:p,y:i+12+o*it,"font-size":o,children:d})]});return f(
"g",{class:"stepper",children:[f("title",{children:e.text(e.frame(-l-1).name)}),f("rect",{class:"plate",x:r-66,y:i+2,width:132,height:20,rx:5}),c(a-1,r-54,"‹",
"previous turn"),f("text",{x:r,y:i+12+o*it,"font-size":o,children:Wt(`${a+1} of ${u.length}`,84,o,!0)}),c(a+1,r+54,"›","next turn")]})}function Zi({model:e,opened:t,
boxes:n,lines:r,detail:i,marks:s,shown:o,labels:a}){let u=[],l=new Map,c=un(i);for(let h of n){if(!o.units.has(h.unit))continue;let p=o.whole.has(h.unit);if(h.kind!==
"open"){u.push(f(mr,{model:e,opened:t,box:h,detail:i,marks:s},`b${h.unit}`));continue}u.push(f(Ha,{box:h,whole:p,halved:!p||Xi(e,h,i),back:!p||e.frame(-h.unit-1).
counts[1]>0},`b${h.unit}`));let d=(r.get(-h.unit-1)??[]).filter(m=>Se(m,o));for(let m of d)if(m.side==="bridge")for(let b of m.ends)l.set(String(b),b);u.push(f(
"g",{class:"lines",children:[...d].sort((m,b)=>+(m.side!=="bridge")-+(b.side!=="bridge")).map(m=>f(za,{line:m,detail:i},m.d))},`l${h.unit}`)),u.push(f(qa,{model:e,
opened:t,box:h,detail:i,marks:s,whole:p},`h${h.unit}`))}return f("g",{children:[u,f(Ki,{points:[...l.values()],detail:i}),a.map(h=>f(pr,{label:h,size:c},h.line.
key))]})}function ln(){let e=t=>f("marker",{id:`tip-${t}`,class:`tip ${t}`,viewBox:"0 0 8 8",refX:"7",refY:"4",markerWidth:"7",markerHeight:"7",markerUnits:"use\
rSpaceOnUse",orient:"auto",children:f("path",{d:"M0 .8L8 4L0 7.2Z"})});return f("defs",{children:[e("left"),e("right")]})}function Qi(e,t){let{x:n,y:r,w:i,h:s,node:o}=e.visible(),a=document.createElementNS("http://www.w3.org/2000/svg","svg");ie([f("title",{children:t}),f("rect",{class:"\
paper",x:n,y:r,width:i,height:s}),f(ln,{}),o],a);let u={viewBox:`${n} ${r} ${i} ${s}`,width:String(Math.round(i)),height:String(Math.round(s)),class:"picture"};
for(let[c,h]of Object.entries(u))a.setAttribute(c,h);let l=new XMLSerializer().serializeToString(a).replace("</title>",`</title><style>${Vi}</style>`);return ie(
null,a),`<?xml version="1.0" encoding="UTF-8"?>
${l}
`}function Ji(e,t){let n=URL.createObjectURL(new Blob([t],{type:"image/svg+xml"})),r=document.createElement("a");r.href=n,r.download=e,r.click(),setTimeout(()=>URL.
revokeObjectURL(n),1e3)}async function ts(e){try{return await navigator.clipboard.writeText(e),"The link is copied."}catch{return e}}var Xa={"":1,b:1,k:1024,kib:1024,kb:1e3,m:1024**2,mib:1024**2,mb:1e6,g:1024**3,gib:1024**3,gb:1e9},Ya=3,cn="any:",ja=["names","operators","shapes","source lines",
"modules","parameters"],es=[["op:mm","steps whose operator is mm (op:mm* for those that begin with it)"],["kind:matmul","matmul, convolution, attention, norm, s\
oftmax, reduction, pointwise, embedding, copy, creation, view, guard"],["is:saved","steps whose value is saved for the backward; also is:view, is:guard"],["side\
:backward","steps of the backward; also side:forward"],[">1MiB","steps that write more than 1 MiB; also <4KiB"],["module:layers.3","steps of this module and of \
those inside it"],["line:model.py:12","steps of a source line, or of a whole file"],["shape:3,4","values with these sizes next to one another"],["any:relu","ste\
ps that have a word anywhere: in source lines, modules, parameters and shapes, too"],["has:nan","steps whose values were measured and have NaN; also has:inf"]];
function ns(e){return e.data.marks?[...es,["is:changed","steps that changed; also is:added, is:removed"]]:es}var fn=class{constructor(t){this.model=t;this.lower=
t.strings.map(n=>n.toLowerCase()),this.lines=t.data.sources.map(n=>`${this.lower[n[0]]}:${n[1]}`),this.paths=t.data.frames.map((n,r)=>t.path(r).toLowerCase()),this.
codes=t.data.sources.map(n=>`${this.lower[n[2]]} ${this.lower[n[3]]}`)}model;lower;lines;codes;paths;find(t){let n=[...t.toLowerCase().matchAll(/(any:)?"([^"]*)"|(\S+)/g)].
map(g=>g[3]??`${g[1]??""}${g[2]}`).filter(Boolean);if(!n.length)return null;let r=[],i=[],s=[],o=!1;for(let g of n){let w=g.startsWith(cn)&&g.length>cn.length?null:
this.filterOf(g);typeof w=="string"?s.push(w):w?r.push(w):(o||=g.startsWith(cn),i.push(g.replace(cn,"")))}let a=i.map(g=>this.placesOf(g)),u=[[],[],[]],l=[];if(!s.
length)for(let g=0;g<this.model.count;g++)!r.every(w=>w(g))||!a.every(w=>w[g])||(!a.length||a.every(w=>w[g]&Ya)?u[a.length?this.rank(g,i[0]):0].push(g):l.push(g));
let c=s.length||r.length?[[],[]]:this.framesOf(i),h=u.flat(),p=o||!h.length,d=g=>this.countsOf(g,a[0]),m=p?[...h,...l]:h,b=p?[]:l,v=n.map(g=>i.includes(g)?/\s/.
test(g)?`any:"${g}"`:`any:${g}`:g).join(" ");return{...this.sum(c,m,s.join(" ")),counts:d(m),elsewhere:{steps:b.length,counts:d(b),query:v}}}countsOf(t,n){return n?
ja.map((r,i)=>[r,t.reduce((s,o)=>s+(n[o]>>i&1),0)]).filter(([,r])=>r):[]}sum([t,n],r,i){let{model:s}=this,o=new Map,a=0,u=new Int32Array(s.data.frames.length);for(let l of r)
s.isForward(l)&&a++,u[s.data.nodes.frame[l]]++;return u.forEach((l,c)=>{if(l)for(let h=c;h>=0;h=s.frame(h).parent)o.set(h,(o.get(h)??0)+l)}),{units:[...t,...r,...n],
steps:new Set(r),within:o,forward:a,problem:i}}rank(t,n){let{model:r}=this,i=[r.shorts[t].toLowerCase(),this.lower[r.data.nodes.name[t]]];return i.includes(n)?0:
i.some(s=>s.startsWith(n))?1:2}framesOf(t){let{model:n}=this,r=[[],[]],i=new Set;return n.data.frames.forEach((s,o)=>{let a=this.lower[s.name],u=`${this.paths[o]}\
 ${this.lower[s.label]}`;o===0||i.has(n.alike[o])||!t.every(l=>u.includes(l))||t.some(l=>a.includes(l)||this.lower[s.label].includes(l)||l.includes("."))&&(i.add(
n.alike[o]),r[a.startsWith(t[0])||this.paths[o]===t[0]?0:1].push(F(o)))}),r}placesOf(t){let{model:n}=this,{nodes:r,sources:i}=n.data,s=Uint8Array.from(this.lower,
l=>Number(l.includes(t))),o=Uint8Array.from(i,(l,c)=>(this.lines[c].includes(t)||this.codes[c].includes(t)?8:0)|(s[l[4]]?16:0)),a=Uint8Array.from(n.entering,l=>s[l.
name]?32:0),u=new Uint8Array(n.count);for(let l=0;l<n.count;l++){let c=s[r.name[l]]|s[r.op[l]]<<1|s[r.spec[l]]<<2;r.source[l]>=0&&(c|=o[r.source[l]]);for(let h of r.
inputs[l])h>=n.count&&(c|=a[h-n.count]);u[l]=c}return u}filterOf(t){let n=/^([<>])=?([\d.]+)([a-z]*)$/.exec(t);if(n){let s=Xa[n[3]];if(s===void 0)return`“${t}\
”: the unit is B, KiB, MiB or GiB.`;let o=Number(n[2])*s,{written:a}=this.model.data.nodes;return n[1]===">"?u=>a[u]>o:u=>a[u]<o}let[,r,i]=/^(op|kind|is|side|module|line|shape|has):(.*)$/.
exec(t)??[];return r?i?this.keyed(r,i):`“${t}” needs something behind the colon.`:null}keyed(t,n){let{model:r}=this,{nodes:i,sources:s}=r.data,o=u=>`“${t}\
:${n}”: ${t} is one of ${u.join(", ")}.`;return{op:()=>{let u=n.endsWith("*")?n.slice(0,-1):null,l=r.strings.map((c,h)=>this.lower[h]);return c=>{let[h,p]=[r.
shorts[c].toLowerCase(),l[i.op[c]]];return u===null?h===n||p===n||p.endsWith(`.${n}`)||p.startsWith(`${n}.`):h.startsWith(u)||p.startsWith(u)}},kind:()=>{let u=[
...new Set(r.kinds)].sort();return u.includes(n)?l=>r.kinds[l]===n:o(u)},is:()=>{let u={saved:l=>r.isSaved(l),view:l=>r.isView(l),guard:l=>r.kinds[l]==="guard"};
if(r.data.marks)for(let l of bt)u[l]=c=>r.marks.get(c)?.kind===l;return Object.hasOwn(u,n)?u[n]:o(Object.keys(u))},side:()=>n==="forward"||n==="backward"?u=>r.isForward(
u)===(n==="forward"):o(["forward","backward"]),module:()=>{let u=h=>h===n||h.startsWith(`${n}.`)||h.includes(`.${n}.`)||h.endsWith(`.${n}`),l=r.strings.map((h,p)=>u(
this.lower[p])),c=this.paths.map(u);return h=>c[i.frame[h]]||i.source[h]>=0&&l[s[i.source[h]][4]]},line:()=>{let u=this.lines.map(l=>l===n||l.endsWith(`/${n}`)||
l.startsWith(`${n}:`)||l.includes(`/${n}:`));return l=>i.source[l]>=0&&u[i.source[l]]},shape:()=>{let u=`,${n.replace(/[^\w,*]/g,"")},`,l=r.strings.map(c=>/\[/.
test(c)&&`,${c.slice(c.indexOf("[")+1,c.lastIndexOf("]")).replace(/\s/g,"")},`.includes(u));return c=>l[i.spec[c]]},has:()=>r.data.stats?n==="nan"||n==="inf"?u=>(r.
bad.get(u)?.[n]??0)>0:o(["nan","inf"]):"This capture has no statistics of values, so has: finds nothing."}[t]()}};var hn=50,dn=class extends W{state={open:!1};input=at();componentDidMount(){this.props.mounted(this)}focus(){this.input.current.focus(),this.input.current.select()}pressed=t=>{
let{found:n,at:r,onGo:i,onLeave:s}=this.props,o=n?.units.length??0;if(t.stopPropagation(),t.key==="Escape")t.preventDefault(),this.setState({open:!1}),s();else if(o&&
(t.key==="Enter"||t.key==="ArrowDown"||t.key==="ArrowUp")){t.preventDefault();let a=t.key==="ArrowUp"||t.shiftKey;this.setState({open:t.key!=="Enter"}),i(r<0?a?
o-1:0:(r+(a?o-1:1))%o)}};render({query:t,found:n,model:r,at:i,onQuery:s,onGo:o}){return f("div",{class:"finder",role:"search",onFocusOut:a=>{a.currentTarget.contains(
a.relatedTarget)||this.setState({open:!1})},children:[f("input",{ref:this.input,type:"search",value:t,placeholder:"search: name, operator, shape, line   /","ari\
a-label":"search",spellcheck:!1,onInput:a=>{s(a.currentTarget.value),this.setState({open:!0})},onFocus:()=>this.setState({open:!0}),onKeyDown:this.pressed}),n&&
f("output",{class:"total",children:n.problem?"?":E(n.units.length)}),this.state.open&&f("div",{class:"results",tabIndex:-1,children:n?f(Qa,{found:n,model:r,at:i,
onGo:o,onQuery:a=>{s(a),this.focus()}}):f(Za,{model:r,onQuery:a=>{s(a),this.focus()}})})]})}};function Za({model:e,onQuery:t}){return f("div",{class:"help",children:[
f("p",{class:"soft",children:"Words are looked for in names and operators; where none has them, in shapes, source lines, modules and parameters, too. Filters ca\
n be put beside them:"}),f("dl",{children:ns(e).map(([n,r])=>[f("dt",{children:f("button",{class:"link",onClick:()=>t(n),children:n})},n),f("dd",{children:r},`${n}\
 `)])})]})}var rs=e=>e.map(([t,n])=>`${t} ${E(n)}`).join(", ");function Qa({found:e,model:t,at:n,onGo:r,onQuery:i}){if(e.problem)return f("p",{class:"alarm",children:e.
problem});let s=e.steps.size-e.forward,o=e.units.length-e.steps.size,a=Math.max(0,Math.min(n-20,e.units.length-hn));return f("div",{children:[f("p",{class:"soft\
 counts",children:[[e.forward&&`${E(e.forward)} forward`,s&&`${E(s)} backward`,o&&Q(o,"frame")].filter(Boolean).join(", ")||"Nothing has these words.",e.counts.
length>0&&` · in ${rs(e.counts)}`]}),e.elsewhere.steps>0&&f("p",{children:f("button",{class:"link elsewhere",onClick:()=>i(e.elsewhere.query),children:`${Q(e.elsewhere.
steps,"more step")}, not by name: in ${rs(e.elsewhere.counts)}`})}),f("ul",{children:e.units.slice(a,a+hn).map((u,l)=>f(Ja,{model:t,unit:u,chosen:a+l===n,onGo:()=>r(
a+l)},u))}),e.units.length>hn&&f("p",{class:"soft",children:`${E(a+1)} to ${E(Math.min(e.units.length,a+hn))} of ${E(e.units.length)}; Enter goes on`})]})}function Ja({
model:e,unit:t,chosen:n,onGo:r}){let i=s=>{s.preventDefault(),r()};if(t<0){let s=-t-1;return f("li",{class:n?"chosen":"",onMouseDown:i,children:[f("b",{children:f(
"bdi",{children:e.path(s)})}),f("span",{class:"soft",children:f("bdi",{children:e.text(e.frame(s).label)})})]})}return f("li",{class:n?"chosen":"",onMouseDown:i,
children:[f("b",{class:e.isForward(t)?"forward":"backward",children:f("bdi",{children:e.nameOf(t)})}),f("code",{children:e.specOf(t)}),f("span",{class:"soft",children:f(
"bdi",{children:[e.moduleOf(t),e.lineOf(t)].filter(Boolean).join("  ")})})]})}var is=[["/","search; Enter goes to the first, then to the next; Shift+Enter back; Escape leaves"],["↓ ↑","along the flow, as it is drawn: the forward runs \
down, the backward up"],["← →","to the partner in the other direction"],["Enter","open or close the selected frame, or the one around the selected step"],["\
Shift+Enter","open everything inside the selected frame"],["[ ]","previous or next turn of the loop around the selection"],["n p","next or previous match of the\
 search"],["1 – 9","open every frame to that depth; 0 closes all but the first"],["+ − f a","zoom in, zoom out, fit, fit all"],["m c l o i d","memory, code,\
 lines, operators, inputs and outputs, details"],["Escape","select nothing"],["wheel","move; with Ctrl or ⌘, zoom. Drag moves, too. On the time line: ← → move t\
he moment"]];function ss(e){let t=[["n p","next or previous match of the search; without a search, next or previous change"],["h","changes"]];return e?is.flatMap(
n=>n[0]==="n p"?t:[n]):is}function yr(e,t,n,r){if(n===null)return os(t);let i=n<0||e.isForward(n),s=St(e,t,n),o=u=>u<e.count?St(e,t,u):s,a=i===(r===1);for(let u of tu(
e,n,a)){let l=o(u),c=t.byUnit.get(l);if(l!==s&&c&&c.kind!=="open"&&!e.above(s).includes(-l-1))return l}return eu(t,s,r,i)}function tu(e,t,n){let r=t>=0?[t]:[...e.
inside(-t-1)].filter(o=>e.isForward(o)),i=new Set(r);return r.flatMap(o=>n?e.usersOf(o):e.data.nodes.inputs[o]).filter(o=>o<e.count&&!i.has(o)).sort((o,a)=>n?o-
a:a-o)}function eu(e,t,n,r){let i=e.byUnit.get(t);if(!i)return os(e);let[s,o]=[t,1/0];for(let a of e.boxes){let u=(a.y-i.y)*n;if(a.kind==="open"||u<=0||a.kind===
"node"&&a.mid<0!==r)continue;let l=u+Math.abs(a.mid-i.mid)/20;l<o&&([s,o]=[a.unit,l])}return s}function os(e){return e.boxes.find(t=>t.kind!=="open")?.unit??null}
function vr(e,t,n){return t===null||t<0||e.isForward(t)!==n?t:(n?e.pulled[t]:e.data.nodes.partners[t])[0]??t}var Xt=64,ht=16,as=11,pn=class extends W{state={wide:0};frame=at();watcher=new ResizeObserver(()=>this.setState({wide:this.frame.current.clientWidth}));shape=null;componentDidMount(){
this.watcher.observe(this.frame.current),this.setState({wide:this.frame.current.clientWidth})}componentWillUnmount(){this.watcher.disconnect()}shouldComponentUpdate(t,n){
let{model:r,moment:i,selected:s}=this.props;return t.model!==r||t.moment!==i||t.selected!==s||n.wide!==this.state.wide}get step(){return this.state.wide/Math.max(
1,this.props.model.count)}paths(){let{model:t}=this.props,{wide:n}=this.state;if(this.shape?.model===t&&this.shape.wide===n)return this.shape.paths;let{live:r}=t.
data.memory,i=Math.max(1,us(r)),s=Math.max(1,Math.floor(1/this.step/1.5)),o=(u,l)=>{if(u>=l)return"";let c=`M${(u*this.step).toFixed(1)} ${ht+Xt}`;for(let h=u;h<
l;h+=s){let p=Math.min(l,h+s),d=ht+Xt*(1-us(r,h,p)/i);c+=`L${(h*this.step).toFixed(1)} ${d.toFixed(1)}L${(p*this.step).toFixed(1)} ${d.toFixed(1)}`}return`${c}L${(l*
this.step).toFixed(1)} ${ht+Xt}Z`},a=[o(0,t.data.forward),o(t.data.forward,t.count)];return this.shape={model:t,wide:n,paths:a},a}chosen=t=>{let n=Math.floor((t.
clientX-this.frame.current.getBoundingClientRect().left)/this.step);this.props.onMoment(Math.max(0,Math.min(this.props.model.count-1,n)))};pressed=t=>{let{model:n,
moment:r,onMoment:i}=this.props,s={ArrowRight:1,ArrowLeft:-1,PageDown:10,PageUp:-10}[t.key],o=r??n.data.memory.peak[0],a=t.key==="Home"?0:t.key==="End"?n.count-
1:s===void 0?null:o+s*(t.shiftKey?10:1);a!==null&&(t.preventDefault(),t.stopPropagation(),i(Math.max(0,Math.min(n.count-1,a))))};render({model:t,moment:n,selected:r}){
let{wide:i}=this.state,{memory:s,forward:o}=t.data,[a,u]=s.peak,[l,c]=i&&t.count?this.paths():["",""],h=w=>(w+.5)*this.step,p=[`peak ${A(u)} + ${A(s.before)} he\
ld by the caller`,`peak ${A(u)}`],d=p.find(w=>z(w,as)<i-24)??"",m=z(d,as),b=h(a)+8,v=b+m<i-6?b:Math.max(4,Math.min(h(a)-8-m,i-m-6)),g=n===null?"":`, ${A(s.live[n])}\
 at step ${E(n+1)}`;return f("div",{class:"timeline",ref:this.frame,tabIndex:0,role:"slider","aria-label":"live bytes over forward and backward","aria-valuemin":0,
"aria-valuemax":Math.max(0,t.count-1),"aria-valuenow":n??Math.max(0,a),"aria-valuetext":`peak ${A(u)}${g}`,onClick:this.chosen,onMouseMove:w=>w.buttons===1&&this.
chosen(w),onKeyDown:this.pressed,children:f("svg",{width:i,height:ht+Xt+1,children:[f("path",{class:"area forward",d:l}),f("path",{class:"area backward",d:c}),o>
0&&o<t.count&&f("path",{class:"border",d:`M${o*this.step} ${ht}V${ht+Xt}`}),a>=0&&t.count>0&&f("circle",{class:"peak",cx:h(a),cy:ht,r:3.5}),a>=0&&t.count>0&&f("\
text",{class:"peak",x:v,y:11,children:d}),r!==null&&r>=0&&f("path",{class:"cursor selected",d:`M${h(r)} ${ht-4}V${ht+Xt}`}),n!==null&&f("path",{class:"cursor",d:`\
M${h(n)} ${ht-4}V${ht+Xt}`})]})})}};function us(e,t=0,n=e.length){let r=0;for(let i=t;i<n;i++)e[i]>r&&(r=e[i]);return r}function nu(e,t){return e.data.memory.spans.
filter(([,n,r])=>n<=t&&t<=r).sort((n,r)=>r[3]-n[3])}function ls({model:e,moment:t,go:n,onMoment:r}){let{memory:i}=e.data,[s,o]=i.peak,a=t??s;if(a<0||!e.count)return f(
"div",{class:"panel",children:[f("h2",{children:"Memory"}),f("p",{class:"soft",children:"There is no step, so nothing is live."})]});let u=nu(e,a),l=u.reduce((h,p)=>h+
p[3],0),c=[{name:"value",value:h=>e.nameOf(h[0]),cell:h=>f(yt,{model:e,value:h[0],go:n})},{name:"bytes",value:h=>h[3],cell:h=>A(h[3])},{name:"as",value:h=>e.text(
h[4]),cell:h=>e.text(h[4])},{name:"steps",value:h=>h[2]-h[1]+1,cell:h=>`${E(h[1]+1)}–${h[2]<e.count?E(h[2]+1):"end"}`}];return f("div",{class:"panel",children:[
f("h2",{children:"Memory"}),f("dl",{children:[f("dt",{children:"Step"}),f("dd",{children:[`${E(a+1)} of ${E(e.count)}: `,f(yt,{model:e,value:a,go:n})]}),f("dt",
{children:"Live"}),f("dd",{children:[`${A(i.live[a])} in ${E(u.length)} values`,Math.abs(l-i.live[a])>.5&&f("span",{class:"soft",children:` (${A(l)} listed belo\
w)`})]}),f("dt",{children:"Peak"}),f("dd",{children:[`${A(o)} at `,f("button",{class:"link",onClick:()=>r(s),children:`step ${E(s+1)}`})]}),f("dt",{children:"Be\
fore"}),f("dd",{children:`${A(i.before)} of parameters, buffers and inputs, held by the caller`})]}),f(ft,{columns:c,rows:u,sort:[1,-1],empty:"Nothing is held a\
t this step."},a),f("h3",{children:"Held by the caller throughout"}),f(ft,{columns:c.slice(0,3),rows:i.held,sort:[1,-1],empty:"Nothing."})]})}var wr="http://www.w3.org/1999/xhtml",cs={svg:"http://www.w3.org/2000/svg",xhtml:wr,xlink:"http://www.w3.org/1999/xlink",xml:"http://www.w3.org/XML/1998/namespa\
ce",xmlns:"http://www.w3.org/2000/xmlns/"};function Ee(e){var t=e+="",n=t.indexOf(":");return n>=0&&(t=e.slice(0,n))!=="xmlns"&&(e=e.slice(n+1)),cs.hasOwnProperty(
t)?{space:cs[t],local:e}:e}function ru(e){return function(){var t=this.ownerDocument,n=this.namespaceURI;return n===wr&&t.documentElement.namespaceURI===wr?t.createElement(
e):t.createElementNS(n,e)}}function iu(e){return function(){return this.ownerDocument.createElementNS(e.space,e.local)}}function fs(e){var t=Ee(e);return(t.local?
iu:ru)(t)}function su(){}function gn(e){return e==null?su:function(){return this.querySelector(e)}}function ou(e){typeof e!="function"&&(e=gn(e));for(var t=this.
_groups,n=t.length,r=new Array(n),i=0;i<n;++i)for(var s=t[i],o=s.length,a=r[i]=new Array(o),u,l,c=0;c<o;++c)(u=s[c])&&(l=e.call(u,u.__data__,c,s))&&("__data__"in
u&&(l.__data__=u.__data__),a[c]=l);return new nt(r,this._parents)}function au(e){return e==null?[]:Array.isArray(e)?e:Array.from(e)}function uu(){return[]}function xr(e){
return e==null?uu:function(){return this.querySelectorAll(e)}}function lu(e){return function(){return au(e.apply(this,arguments))}}function cu(e){typeof e=="fun\
ction"?e=lu(e):e=xr(e);for(var t=this._groups,n=t.length,r=[],i=[],s=0;s<n;++s)for(var o=t[s],a=o.length,u,l=0;l<a;++l)(u=o[l])&&(r.push(e.call(u,u.__data__,l,o)),
i.push(u));return new nt(r,i)}function kr(e){return function(){return this.matches(e)}}function hs(e){return function(t){return t.matches(e)}}var fu=Array.prototype.
find;function hu(e){return function(){return fu.call(this.children,e)}}function du(){return this.firstElementChild}function pu(e){return this.select(e==null?du:
hu(typeof e=="function"?e:hs(e)))}var mu=Array.prototype.filter;function gu(){return Array.from(this.children)}function bu(e){return function(){return mu.call(this.
children,e)}}function yu(e){return this.selectAll(e==null?gu:bu(typeof e=="function"?e:hs(e)))}function vu(e){typeof e!="function"&&(e=kr(e));for(var t=this._groups,
n=t.length,r=new Array(n),i=0;i<n;++i)for(var s=t[i],o=s.length,a=r[i]=[],u,l=0;l<o;++l)(u=s[l])&&e.call(u,u.__data__,l,s)&&a.push(u);return new nt(r,this._parents)}
function ds(e){return new Array(e.length)}function wu(){return new nt(this._enter||this._groups.map(ds),this._parents)}function mn(e,t){this.ownerDocument=e.ownerDocument,
this.namespaceURI=e.namespaceURI,this._next=null,this._parent=e,this.__data__=t}mn.prototype={constructor:mn,appendChild:function(e){return this._parent.insertBefore(
e,this._next)},insertBefore:function(e,t){return this._parent.insertBefore(e,t)},querySelector:function(e){return this._parent.querySelector(e)},querySelectorAll:function(e){
return this._parent.querySelectorAll(e)}};function _u(e){return function(){return e}}function xu(e,t,n,r,i,s){for(var o=0,a,u=t.length,l=s.length;o<l;++o)(a=t[o])?
(a.__data__=s[o],r[o]=a):n[o]=new mn(e,s[o]);for(;o<u;++o)(a=t[o])&&(i[o]=a)}function ku(e,t,n,r,i,s,o){var a,u,l=new Map,c=t.length,h=s.length,p=new Array(c),d;
for(a=0;a<c;++a)(u=t[a])&&(p[a]=d=o.call(u,u.__data__,a,t)+"",l.has(d)?i[a]=u:l.set(d,u));for(a=0;a<h;++a)d=o.call(e,s[a],a,s)+"",(u=l.get(d))?(r[a]=u,u.__data__=
s[a],l.delete(d)):n[a]=new mn(e,s[a]);for(a=0;a<c;++a)(u=t[a])&&l.get(p[a])===u&&(i[a]=u)}function $u(e){return e.__data__}function Mu(e,t){if(!arguments.length)
return Array.from(this,$u);var n=t?ku:xu,r=this._parents,i=this._groups;typeof e!="function"&&(e=_u(e));for(var s=i.length,o=new Array(s),a=new Array(s),u=new Array(
s),l=0;l<s;++l){var c=r[l],h=i[l],p=h.length,d=Su(e.call(c,c&&c.__data__,l,r)),m=d.length,b=a[l]=new Array(m),v=o[l]=new Array(m),g=u[l]=new Array(p);n(c,h,b,v,
g,d,t);for(var w=0,x=0,M,L;w<m;++w)if(M=b[w]){for(w>=x&&(x=w+1);!(L=v[x])&&++x<m;);M._next=L||null}}return o=new nt(o,r),o._enter=a,o._exit=u,o}function Su(e){return typeof e==
"object"&&"length"in e?e:Array.from(e)}function Eu(){return new nt(this._exit||this._groups.map(ds),this._parents)}function Ou(e,t,n){var r=this.enter(),i=this,
s=this.exit();return typeof e=="function"?(r=e(r),r&&(r=r.selection())):r=r.append(e+""),t!=null&&(i=t(i),i&&(i=i.selection())),n==null?s.remove():n(s),r&&i?r.merge(
i).order():i}function Nu(e){for(var t=e.selection?e.selection():e,n=this._groups,r=t._groups,i=n.length,s=r.length,o=Math.min(i,s),a=new Array(i),u=0;u<o;++u)for(var l=n[u],
c=r[u],h=l.length,p=a[u]=new Array(h),d,m=0;m<h;++m)(d=l[m]||c[m])&&(p[m]=d);for(;u<i;++u)a[u]=n[u];return new nt(a,this._parents)}function Cu(){for(var e=this.
_groups,t=-1,n=e.length;++t<n;)for(var r=e[t],i=r.length-1,s=r[i],o;--i>=0;)(o=r[i])&&(s&&o.compareDocumentPosition(s)^4&&s.parentNode.insertBefore(o,s),s=o);return this}
function Au(e){e||(e=Pu);function t(h,p){return h&&p?e(h.__data__,p.__data__):!h-!p}for(var n=this._groups,r=n.length,i=new Array(r),s=0;s<r;++s){for(var o=n[s],
a=o.length,u=i[s]=new Array(a),l,c=0;c<a;++c)(l=o[c])&&(u[c]=l);u.sort(t)}return new nt(i,this._parents).order()}function Pu(e,t){return e<t?-1:e>t?1:e>=t?0:NaN}
function Tu(){var e=arguments[0];return arguments[0]=this,e.apply(null,arguments),this}function Lu(){return Array.from(this)}function Iu(){for(var e=this._groups,
t=0,n=e.length;t<n;++t)for(var r=e[t],i=0,s=r.length;i<s;++i){var o=r[i];if(o)return o}return null}function Uu(){let e=0;for(let t of this)++e;return e}function Du(){
return!this.node()}function Bu(e){for(var t=this._groups,n=0,r=t.length;n<r;++n)for(var i=t[n],s=0,o=i.length,a;s<o;++s)(a=i[s])&&e.call(a,a.__data__,s,i);return this}
function zu(e){return function(){this.removeAttribute(e)}}function Fu(e){return function(){this.removeAttributeNS(e.space,e.local)}}function Ru(e,t){return function(){
this.setAttribute(e,t)}}function Vu(e,t){return function(){this.setAttributeNS(e.space,e.local,t)}}function Gu(e,t){return function(){var n=t.apply(this,arguments);
n==null?this.removeAttribute(e):this.setAttribute(e,n)}}function Wu(e,t){return function(){var n=t.apply(this,arguments);n==null?this.removeAttributeNS(e.space,
e.local):this.setAttributeNS(e.space,e.local,n)}}function Hu(e,t){var n=Ee(e);if(arguments.length<2){var r=this.node();return n.local?r.getAttributeNS(n.space,n.
local):r.getAttribute(n)}return this.each((t==null?n.local?Fu:zu:typeof t=="function"?n.local?Wu:Gu:n.local?Vu:Ru)(n,t))}function ps(e){return e.ownerDocument&&
e.ownerDocument.defaultView||e.document&&e||e.defaultView}function qu(e){return function(){this.style.removeProperty(e)}}function Ku(e,t,n){return function(){this.
style.setProperty(e,t,n)}}function Xu(e,t,n){return function(){var r=t.apply(this,arguments);r==null?this.style.removeProperty(e):this.style.setProperty(e,r,n)}}
function Yu(e,t,n){return arguments.length>1?this.each((t==null?qu:typeof t=="function"?Xu:Ku)(e,t,n??"")):Yt(this.node(),e)}function Yt(e,t){return e.style.getPropertyValue(
t)||ps(e).getComputedStyle(e,null).getPropertyValue(t)}function ju(e){return function(){delete this[e]}}function Zu(e,t){return function(){this[e]=t}}function Qu(e,t){
return function(){var n=t.apply(this,arguments);n==null?delete this[e]:this[e]=n}}function Ju(e,t){return arguments.length>1?this.each((t==null?ju:typeof t=="fu\
nction"?Qu:Zu)(e,t)):this.node()[e]}function ms(e){return e.trim().split(/^|\s+/)}function $r(e){return e.classList||new gs(e)}function gs(e){this._node=e,this.
_names=ms(e.getAttribute("class")||"")}gs.prototype={add:function(e){var t=this._names.indexOf(e);t<0&&(this._names.push(e),this._node.setAttribute("class",this.
_names.join(" ")))},remove:function(e){var t=this._names.indexOf(e);t>=0&&(this._names.splice(t,1),this._node.setAttribute("class",this._names.join(" ")))},contains:function(e){
return this._names.indexOf(e)>=0}};function bs(e,t){for(var n=$r(e),r=-1,i=t.length;++r<i;)n.add(t[r])}function ys(e,t){for(var n=$r(e),r=-1,i=t.length;++r<i;)n.
remove(t[r])}function tl(e){return function(){bs(this,e)}}function el(e){return function(){ys(this,e)}}function nl(e,t){return function(){(t.apply(this,arguments)?
bs:ys)(this,e)}}function rl(e,t){var n=ms(e+"");if(arguments.length<2){for(var r=$r(this.node()),i=-1,s=n.length;++i<s;)if(!r.contains(n[i]))return!1;return!0}return this.
each((typeof t=="function"?nl:t?tl:el)(n,t))}function il(){this.textContent=""}function sl(e){return function(){this.textContent=e}}function ol(e){return function(){
var t=e.apply(this,arguments);this.textContent=t??""}}function al(e){return arguments.length?this.each(e==null?il:(typeof e=="function"?ol:sl)(e)):this.node().textContent}
function ul(){this.innerHTML=""}function ll(e){return function(){this.innerHTML=e}}function cl(e){return function(){var t=e.apply(this,arguments);this.innerHTML=
t??""}}function fl(e){return arguments.length?this.each(e==null?ul:(typeof e=="function"?cl:ll)(e)):this.node().innerHTML}function hl(){this.nextSibling&&this.parentNode.
appendChild(this)}function dl(){return this.each(hl)}function pl(){this.previousSibling&&this.parentNode.insertBefore(this,this.parentNode.firstChild)}function ml(){
return this.each(pl)}function gl(e){var t=typeof e=="function"?e:fs(e);return this.select(function(){return this.appendChild(t.apply(this,arguments))})}function bl(){
return null}function yl(e,t){var n=typeof e=="function"?e:fs(e),r=t==null?bl:typeof t=="function"?t:gn(t);return this.select(function(){return this.insertBefore(
n.apply(this,arguments),r.apply(this,arguments)||null)})}function vl(){var e=this.parentNode;e&&e.removeChild(this)}function wl(){return this.each(vl)}function _l(){
var e=this.cloneNode(!1),t=this.parentNode;return t?t.insertBefore(e,this.nextSibling):e}function xl(){var e=this.cloneNode(!0),t=this.parentNode;return t?t.insertBefore(
e,this.nextSibling):e}function kl(e){return this.select(e?xl:_l)}function $l(e){return arguments.length?this.property("__data__",e):this.node().__data__}function Ml(e){
return function(t){e.call(this,t,this.__data__)}}function Sl(e){return e.trim().split(/^|\s+/).map(function(t){var n="",r=t.indexOf(".");return r>=0&&(n=t.slice(
r+1),t=t.slice(0,r)),{type:t,name:n}})}function El(e){return function(){var t=this.__on;if(t){for(var n=0,r=-1,i=t.length,s;n<i;++n)s=t[n],(!e.type||s.type===e.
type)&&s.name===e.name?this.removeEventListener(s.type,s.listener,s.options):t[++r]=s;++r?t.length=r:delete this.__on}}}function Ol(e,t,n){return function(){var r=this.
__on,i,s=Ml(t);if(r){for(var o=0,a=r.length;o<a;++o)if((i=r[o]).type===e.type&&i.name===e.name){this.removeEventListener(i.type,i.listener,i.options),this.addEventListener(
i.type,i.listener=s,i.options=n),i.value=t;return}}this.addEventListener(e.type,s,n),i={type:e.type,name:e.name,value:t,listener:s,options:n},r?r.push(i):this.__on=
[i]}}function Nl(e,t,n){var r=Sl(e+""),i,s=r.length,o;if(arguments.length<2){var a=this.node().__on;if(a){for(var u=0,l=a.length,c;u<l;++u)for(i=0,c=a[u];i<s;++i)
if((o=r[i]).type===c.type&&o.name===c.name)return c.value}return}for(a=t?Ol:El,i=0;i<s;++i)this.each(a(r[i],t,n));return this}function vs(e,t,n){var r=ps(e),i=r.
CustomEvent;typeof i=="function"?i=new i(t,n):(i=r.document.createEvent("Event"),n?(i.initEvent(t,n.bubbles,n.cancelable),i.detail=n.detail):i.initEvent(t,!1,!1)),
e.dispatchEvent(i)}function Cl(e,t){return function(){return vs(this,e,t)}}function Al(e,t){return function(){return vs(this,e,t.apply(this,arguments))}}function Pl(e,t){
return this.each((typeof t=="function"?Al:Cl)(e,t))}function*Tl(){for(var e=this._groups,t=0,n=e.length;t<n;++t)for(var r=e[t],i=0,s=r.length,o;i<s;++i)(o=r[i])&&
(yield o)}var ws=[null];function nt(e,t){this._groups=e,this._parents=t}function jt(){return new nt([[document.documentElement]],ws)}function Ll(){return this}nt.
prototype=jt.prototype={constructor:nt,select:ou,selectAll:cu,selectChild:pu,selectChildren:yu,filter:vu,data:Mu,enter:wu,exit:Eu,join:Ou,merge:Nu,selection:Ll,
order:Cu,sort:Au,call:Tu,nodes:Lu,node:Iu,size:Uu,empty:Du,each:Bu,attr:Hu,style:Yu,property:Ju,classed:rl,text:al,html:fl,raise:dl,lower:ml,append:gl,insert:yl,
remove:wl,clone:kl,datum:$l,on:Nl,dispatch:Pl,[Symbol.iterator]:Tl};function Y(e){return typeof e=="string"?new nt([[document.querySelector(e)]],[document.documentElement]):
new nt([[e]],ws)}var Il=0;function Ul(){return new _r}function _r(){this._="@"+(++Il).toString(36)}_r.prototype=Ul.prototype={constructor:_r,get:function(e){for(var t=this._;!(t in
e);)if(!(e=e.parentNode))return;return e[t]},set:function(e,t){return e[this._]=t},remove:function(e){return this._ in e&&delete e[this._]},toString:function(){
return this._}};function Dl(e){let t;for(;t=e.sourceEvent;)e=t;return e}function Ot(e,t){if(e=Dl(e),t===void 0&&(t=e.currentTarget),t){var n=t.ownerSVGElement||
t;if(n.createSVGPoint){var r=n.createSVGPoint();return r.x=e.clientX,r.y=e.clientY,r=r.matrixTransform(t.getScreenCTM().inverse()),[r.x,r.y]}if(t.getBoundingClientRect){
var i=t.getBoundingClientRect();return[e.clientX-i.left-t.clientLeft,e.clientY-i.top-t.clientTop]}}return[e.pageX,e.pageY]}var Bl={value:()=>{}};function Oe(){for(var e=0,t=arguments.length,n={},r;e<t;++e){if(!(r=arguments[e]+"")||r in n||/[\s.]/.test(r))throw new Error("illegal typ\
e: "+r);n[r]=[]}return new bn(n)}function bn(e){this._=e}function zl(e,t){return e.trim().split(/^|\s+/).map(function(n){var r="",i=n.indexOf(".");if(i>=0&&(r=n.
slice(i+1),n=n.slice(0,i)),n&&!t.hasOwnProperty(n))throw new Error("unknown type: "+n);return{type:n,name:r}})}bn.prototype=Oe.prototype={constructor:bn,on:function(e,t){
var n=this._,r=zl(e+"",n),i,s=-1,o=r.length;if(arguments.length<2){for(;++s<o;)if((i=(e=r[s]).type)&&(i=Fl(n[i],e.name)))return i;return}if(t!=null&&typeof t!="\
function")throw new Error("invalid callback: "+t);for(;++s<o;)if(i=(e=r[s]).type)n[i]=_s(n[i],e.name,t);else if(t==null)for(i in n)n[i]=_s(n[i],e.name,null);return this},
copy:function(){var e={},t=this._;for(var n in t)e[n]=t[n].slice();return new bn(e)},call:function(e,t){if((i=arguments.length-2)>0)for(var n=new Array(i),r=0,i,
s;r<i;++r)n[r]=arguments[r+2];if(!this._.hasOwnProperty(e))throw new Error("unknown type: "+e);for(s=this._[e],r=0,i=s.length;r<i;++r)s[r].value.apply(t,n)},apply:function(e,t,n){
if(!this._.hasOwnProperty(e))throw new Error("unknown type: "+e);for(var r=this._[e],i=0,s=r.length;i<s;++i)r[i].value.apply(t,n)}};function Fl(e,t){for(var n=0,
r=e.length,i;n<r;++n)if((i=e[n]).name===t)return i.value}function _s(e,t,n){for(var r=0,i=e.length;r<i;++r)if(e[r].name===t){e[r]=Bl,e=e.slice(0,r).concat(e.slice(
r+1));break}return n!=null&&e.push({name:t,value:n}),e}var Mr={capture:!0,passive:!1};function Sr(e){e.preventDefault(),e.stopImmediatePropagation()}function xs(e){var t=e.document.documentElement,n=Y(e).on("dragstart.drag",Sr,Mr);"onselectstart"in
t?n.on("selectstart.drag",Sr,Mr):(t.__noselect=t.style.MozUserSelect,t.style.MozUserSelect="none")}function ks(e,t){var n=e.document.documentElement,r=Y(e).on("\
dragstart.drag",null);t&&(r.on("click.drag",Sr,Mr),setTimeout(function(){r.on("click.drag",null)},0)),"onselectstart"in n?r.on("selectstart.drag",null):(n.style.
MozUserSelect=n.__noselect,delete n.__noselect)}function Rl(e,{sourceEvent:t,subject:n,target:r,identifier:i,active:s,x:o,y:a,dx:u,dy:l,dispatch:c}){Object.defineProperties(this,{type:{value:e,enumerable:!0,configurable:!0},
sourceEvent:{value:t,enumerable:!0,configurable:!0},subject:{value:n,enumerable:!0,configurable:!0},target:{value:r,enumerable:!0,configurable:!0},identifier:{value:i,
enumerable:!0,configurable:!0},active:{value:s,enumerable:!0,configurable:!0},x:{value:o,enumerable:!0,configurable:!0},y:{value:a,enumerable:!0,configurable:!0},
dx:{value:u,enumerable:!0,configurable:!0},dy:{value:l,enumerable:!0,configurable:!0},_:{value:c}})}Rl.prototype.on=function(){var e=this._.on.apply(this._,arguments);
return e===this._?this:e};function ge(e,t,n){e.prototype=t.prototype=n,n.constructor=e}function Ae(e,t){var n=Object.create(e.prototype);for(var r in t)n[r]=t[r];return n}function Ft(){}
var te=.7,me=1/te,de="\\s*([+-]?\\d+)\\s*",Ne="\\s*([+-]?(?:\\d*\\.)?\\d+(?:[eE][+-]?\\d+)?)\\s*",vt="\\s*([+-]?(?:\\d*\\.)?\\d+(?:[eE][+-]?\\d+)?)%\\s*",Vl=/^#([0-9a-f]{3,8})$/,
Gl=new RegExp(`^rgb\\(${de},${de},${de}\\)$`),Wl=new RegExp(`^rgb\\(${vt},${vt},${vt}\\)$`),Hl=new RegExp(`^rgba\\(${de},${de},${de},${Ne}\\)$`),ql=new RegExp(`\
^rgba\\(${vt},${vt},${vt},${Ne}\\)$`),Kl=new RegExp(`^hsl\\(${Ne},${vt},${vt}\\)$`),Xl=new RegExp(`^hsla\\(${Ne},${vt},${vt},${Ne}\\)$`),$s={aliceblue:15792383,
antiquewhite:16444375,aqua:65535,aquamarine:8388564,azure:15794175,beige:16119260,bisque:16770244,black:0,blanchedalmond:16772045,blue:255,blueviolet:9055202,brown:10824234,
burlywood:14596231,cadetblue:6266528,chartreuse:8388352,chocolate:13789470,coral:16744272,cornflowerblue:6591981,cornsilk:16775388,crimson:14423100,cyan:65535,darkblue:139,
darkcyan:35723,darkgoldenrod:12092939,darkgray:11119017,darkgreen:25600,darkgrey:11119017,darkkhaki:12433259,darkmagenta:9109643,darkolivegreen:5597999,darkorange:16747520,
darkorchid:10040012,darkred:9109504,darksalmon:15308410,darkseagreen:9419919,darkslateblue:4734347,darkslategray:3100495,darkslategrey:3100495,darkturquoise:52945,
darkviolet:9699539,deeppink:16716947,deepskyblue:49151,dimgray:6908265,dimgrey:6908265,dodgerblue:2003199,firebrick:11674146,floralwhite:16775920,forestgreen:2263842,
fuchsia:16711935,gainsboro:14474460,ghostwhite:16316671,gold:16766720,goldenrod:14329120,gray:8421504,green:32768,greenyellow:11403055,grey:8421504,honeydew:15794160,
hotpink:16738740,indianred:13458524,indigo:4915330,ivory:16777200,khaki:15787660,lavender:15132410,lavenderblush:16773365,lawngreen:8190976,lemonchiffon:16775885,
lightblue:11393254,lightcoral:15761536,lightcyan:14745599,lightgoldenrodyellow:16448210,lightgray:13882323,lightgreen:9498256,lightgrey:13882323,lightpink:16758465,
lightsalmon:16752762,lightseagreen:2142890,lightskyblue:8900346,lightslategray:7833753,lightslategrey:7833753,lightsteelblue:11584734,lightyellow:16777184,lime:65280,
limegreen:3329330,linen:16445670,magenta:16711935,maroon:8388608,mediumaquamarine:6737322,mediumblue:205,mediumorchid:12211667,mediumpurple:9662683,mediumseagreen:3978097,
mediumslateblue:8087790,mediumspringgreen:64154,mediumturquoise:4772300,mediumvioletred:13047173,midnightblue:1644912,mintcream:16121850,mistyrose:16770273,moccasin:16770229,
navajowhite:16768685,navy:128,oldlace:16643558,olive:8421376,olivedrab:7048739,orange:16753920,orangered:16729344,orchid:14315734,palegoldenrod:15657130,palegreen:10025880,
paleturquoise:11529966,palevioletred:14381203,papayawhip:16773077,peachpuff:16767673,peru:13468991,pink:16761035,plum:14524637,powderblue:11591910,purple:8388736,
rebeccapurple:6697881,red:16711680,rosybrown:12357519,royalblue:4286945,saddlebrown:9127187,salmon:16416882,sandybrown:16032864,seagreen:3050327,seashell:16774638,
sienna:10506797,silver:12632256,skyblue:8900331,slateblue:6970061,slategray:7372944,slategrey:7372944,snow:16775930,springgreen:65407,steelblue:4620980,tan:13808780,
teal:32896,thistle:14204888,tomato:16737095,turquoise:4251856,violet:15631086,wheat:16113331,white:16777215,whitesmoke:16119285,yellow:16776960,yellowgreen:10145074};
ge(Ft,ee,{copy(e){return Object.assign(new this.constructor,this,e)},displayable(){return this.rgb().displayable()},hex:Ms,formatHex:Ms,formatHex8:Yl,formatHsl:jl,
formatRgb:Ss,toString:Ss});function Ms(){return this.rgb().formatHex()}function Yl(){return this.rgb().formatHex8()}function jl(){return Is(this).formatHsl()}function Ss(){
return this.rgb().formatRgb()}function ee(e){var t,n;return e=(e+"").trim().toLowerCase(),(t=Vl.exec(e))?(n=t[1].length,t=parseInt(t[1],16),n===6?Es(t):n===3?new H(
t>>8&15|t>>4&240,t>>4&15|t&240,(t&15)<<4|t&15,1):n===8?yn(t>>24&255,t>>16&255,t>>8&255,(t&255)/255):n===4?yn(t>>12&15|t>>8&240,t>>8&15|t>>4&240,t>>4&15|t&240,((t&
15)<<4|t&15)/255):null):(t=Gl.exec(e))?new H(t[1],t[2],t[3],1):(t=Wl.exec(e))?new H(t[1]*255/100,t[2]*255/100,t[3]*255/100,1):(t=Hl.exec(e))?yn(t[1],t[2],t[3],t[4]):
(t=ql.exec(e))?yn(t[1]*255/100,t[2]*255/100,t[3]*255/100,t[4]):(t=Kl.exec(e))?Cs(t[1],t[2]/100,t[3]/100,1):(t=Xl.exec(e))?Cs(t[1],t[2]/100,t[3]/100,t[4]):$s.hasOwnProperty(
e)?Es($s[e]):e==="transparent"?new H(NaN,NaN,NaN,0):null}function Es(e){return new H(e>>16&255,e>>8&255,e&255,1)}function yn(e,t,n,r){return r<=0&&(e=t=n=NaN),new H(
e,t,n,r)}function Pr(e){return e instanceof Ft||(e=ee(e)),e?(e=e.rgb(),new H(e.r,e.g,e.b,e.opacity)):new H}function Pe(e,t,n,r){return arguments.length===1?Pr(e):
new H(e,t,n,r??1)}function H(e,t,n,r){this.r=+e,this.g=+t,this.b=+n,this.opacity=+r}ge(H,Pe,Ae(Ft,{brighter(e){return e=e==null?me:Math.pow(me,e),new H(this.r*e,
this.g*e,this.b*e,this.opacity)},darker(e){return e=e==null?te:Math.pow(te,e),new H(this.r*e,this.g*e,this.b*e,this.opacity)},rgb(){return this},clamp(){return new H(
Qt(this.r),Qt(this.g),Qt(this.b),wn(this.opacity))},displayable(){return-.5<=this.r&&this.r<255.5&&-.5<=this.g&&this.g<255.5&&-.5<=this.b&&this.b<255.5&&0<=this.
opacity&&this.opacity<=1},hex:Os,formatHex:Os,formatHex8:Zl,formatRgb:Ns,toString:Ns}));function Os(){return`#${Zt(this.r)}${Zt(this.g)}${Zt(this.b)}`}function Zl(){
return`#${Zt(this.r)}${Zt(this.g)}${Zt(this.b)}${Zt((isNaN(this.opacity)?1:this.opacity)*255)}`}function Ns(){let e=wn(this.opacity);return`${e===1?"rgb(":"rgba\
("}${Qt(this.r)}, ${Qt(this.g)}, ${Qt(this.b)}${e===1?")":`, ${e})`}`}function wn(e){return isNaN(e)?1:Math.max(0,Math.min(1,e))}function Qt(e){return Math.max(
0,Math.min(255,Math.round(e)||0))}function Zt(e){return e=Qt(e),(e<16?"0":"")+e.toString(16)}function Cs(e,t,n,r){return r<=0?e=t=n=NaN:n<=0||n>=1?e=t=NaN:t<=0&&
(e=NaN),new dt(e,t,n,r)}function Is(e){if(e instanceof dt)return new dt(e.h,e.s,e.l,e.opacity);if(e instanceof Ft||(e=ee(e)),!e)return new dt;if(e instanceof dt)
return e;e=e.rgb();var t=e.r/255,n=e.g/255,r=e.b/255,i=Math.min(t,n,r),s=Math.max(t,n,r),o=NaN,a=s-i,u=(s+i)/2;return a?(t===s?o=(n-r)/a+(n<r)*6:n===s?o=(r-t)/a+
2:o=(t-n)/a+4,a/=u<.5?s+i:2-s-i,o*=60):a=u>0&&u<1?0:o,new dt(o,a,u,e.opacity)}function xn(e,t,n,r){return arguments.length===1?Is(e):new dt(e,t,n,r??1)}function dt(e,t,n,r){
this.h=+e,this.s=+t,this.l=+n,this.opacity=+r}ge(dt,xn,Ae(Ft,{brighter(e){return e=e==null?me:Math.pow(me,e),new dt(this.h,this.s,this.l*e,this.opacity)},darker(e){
return e=e==null?te:Math.pow(te,e),new dt(this.h,this.s,this.l*e,this.opacity)},rgb(){var e=this.h%360+(this.h<0)*360,t=isNaN(e)||isNaN(this.s)?0:this.s,n=this.
l,r=n+(n<.5?n:1-n)*t,i=2*n-r;return new H(Er(e>=240?e-240:e+120,i,r),Er(e,i,r),Er(e<120?e+240:e-120,i,r),this.opacity)},clamp(){return new dt(As(this.h),vn(this.
s),vn(this.l),wn(this.opacity))},displayable(){return(0<=this.s&&this.s<=1||isNaN(this.s))&&0<=this.l&&this.l<=1&&0<=this.opacity&&this.opacity<=1},formatHsl(){
let e=wn(this.opacity);return`${e===1?"hsl(":"hsla("}${As(this.h)}, ${vn(this.s)*100}%, ${vn(this.l)*100}%${e===1?")":`, ${e})`}`}}));function As(e){return e=(e||
0)%360,e<0?e+360:e}function vn(e){return Math.max(0,Math.min(1,e||0))}function Er(e,t,n){return(e<60?t+(n-t)*e/60:e<180?n:e<240?t+(n-t)*(240-e)/60:t)*255}var Us=Math.
PI/180,Ds=180/Math.PI,_n=18,Bs=.96422,zs=1,Fs=.82521,Rs=4/29,pe=6/29,Vs=3*pe*pe,Ql=pe*pe*pe;function Gs(e){if(e instanceof wt)return new wt(e.l,e.a,e.b,e.opacity);
if(e instanceof Nt)return Hs(e);e instanceof H||(e=Pr(e));var t=Ar(e.r),n=Ar(e.g),r=Ar(e.b),i=Or((.2225045*t+.7168786*n+.0606169*r)/zs),s,o;return t===n&&n===r?
s=o=i:(s=Or((.4360747*t+.3850649*n+.1430804*r)/Bs),o=Or((.0139322*t+.0971045*n+.7141733*r)/Fs)),new wt(116*i-16,500*(s-i),200*(i-o),e.opacity)}function Ws(e,t,n,r){return arguments.length===1?Gs(e):new wt(e,t,n,r??1)}function wt(e,t,n,r){this.l=+e,this.a=+t,this.b=+n,this.opacity=+r}ge(wt,Ws,Ae(Ft,{brighter(e){
return new wt(this.l+_n*(e??1),this.a,this.b,this.opacity)},darker(e){return new wt(this.l-_n*(e??1),this.a,this.b,this.opacity)},rgb(){var e=(this.l+16)/116,t=isNaN(
this.a)?e:e+this.a/500,n=isNaN(this.b)?e:e-this.b/200;return t=Bs*Nr(t),e=zs*Nr(e),n=Fs*Nr(n),new H(Cr(3.1338561*t-1.6168667*e-.4906146*n),Cr(-.9787684*t+1.9161415*
e+.033454*n),Cr(.0719453*t-.2289914*e+1.4052427*n),this.opacity)}}));function Or(e){return e>Ql?Math.pow(e,1/3):e/Vs+Rs}function Nr(e){return e>pe?e*e*e:Vs*(e-Rs)}
function Cr(e){return 255*(e<=.0031308?12.92*e:1.055*Math.pow(e,1/2.4)-.055)}function Ar(e){return(e/=255)<=.04045?e/12.92:Math.pow((e+.055)/1.055,2.4)}function Jl(e){
if(e instanceof Nt)return new Nt(e.h,e.c,e.l,e.opacity);if(e instanceof wt||(e=Gs(e)),e.a===0&&e.b===0)return new Nt(NaN,0<e.l&&e.l<100?0:NaN,e.l,e.opacity);var t=Math.
atan2(e.b,e.a)*Ds;return new Nt(t<0?t+360:t,Math.sqrt(e.a*e.a+e.b*e.b),e.l,e.opacity)}function kn(e,t,n,r){return arguments.length===1?Jl(e):new Nt(e,t,n,r??1)}function Nt(e,t,n,r){this.h=+e,this.c=+t,this.l=+n,this.opacity=+r}function Hs(e){if(isNaN(
e.h))return new wt(e.l,0,0,e.opacity);var t=e.h*Us;return new wt(e.l,Math.cos(t)*e.c,Math.sin(t)*e.c,e.opacity)}ge(Nt,kn,Ae(Ft,{brighter(e){return new Nt(this.h,
this.c,this.l+_n*(e??1),this.opacity)},darker(e){return new Nt(this.h,this.c,this.l-_n*(e??1),this.opacity)},rgb(){return Hs(this).rgb()}}));var qs=-.14861,Tr=1.78277,
Lr=-.29227,$n=-.90649,Ce=1.97294,Ps=Ce*$n,Ts=Ce*Tr,Ls=Tr*Lr-$n*qs;function tc(e){if(e instanceof Jt)return new Jt(e.h,e.s,e.l,e.opacity);e instanceof H||(e=Pr(e));
var t=e.r/255,n=e.g/255,r=e.b/255,i=(Ls*r+Ps*t-Ts*n)/(Ls+Ps-Ts),s=r-i,o=(Ce*(n-i)-Lr*s)/$n,a=Math.sqrt(o*o+s*s)/(Ce*i*(1-i)),u=a?Math.atan2(o,s)*Ds-120:NaN;return new Jt(
u<0?u+360:u,a,i,e.opacity)}function Mn(e,t,n,r){return arguments.length===1?tc(e):new Jt(e,t,n,r??1)}function Jt(e,t,n,r){this.h=+e,this.s=+t,this.l=+n,this.opacity=
+r}ge(Jt,Mn,Ae(Ft,{brighter(e){return e=e==null?me:Math.pow(me,e),new Jt(this.h,this.s,this.l*e,this.opacity)},darker(e){return e=e==null?te:Math.pow(te,e),new Jt(
this.h,this.s,this.l*e,this.opacity)},rgb(){var e=isNaN(this.h)?0:(this.h+120)*Us,t=+this.l,n=isNaN(this.s)?0:this.s*t*(1-t),r=Math.cos(e),i=Math.sin(e);return new H(
255*(t+n*(qs*r+Tr*i)),255*(t+n*(Lr*r+$n*i)),255*(t+n*(Ce*r)),this.opacity)}}));function Ys(e,t,n,r,i){var s=e*e,o=s*e;return((1-3*e+3*s-o)*t+(4-6*s+3*o)*n+(1+3*e+3*s-3*o)*r+o*i)/6}function ec(e){var t=e.length-1;return function(n){var r=n<=
0?n=0:n>=1?(n=1,t-1):Math.floor(n*t),i=e[r],s=e[r+1],o=r>0?e[r-1]:2*i-s,a=r<t-1?e[r+2]:2*s-i;return Ys((n-r/t)*t,o,i,s,a)}}function nc(e){var t=e.length;return function(n){
var r=Math.floor(((n%=1)<0?++n:n)*t),i=e[(r+t-1)%t],s=e[r%t],o=e[(r+1)%t],a=e[(r+2)%t];return Ys((n-r/t)*t,i,s,o,a)}}var Br=e=>()=>e;function js(e,t){return function(n){
return e+n*t}}function rc(e,t,n){return e=Math.pow(e,n),t=Math.pow(t,n)-e,n=1/n,function(r){return Math.pow(e+r*t,n)}}function zr(e,t){var n=t-e;return n?js(e,n>
180||n<-180?n-360*Math.round(n/360):n):Br(isNaN(e)?t:e)}function ic(e){return(e=+e)==1?tt:function(t,n){return n-t?rc(t,n,e):Br(isNaN(t)?n:t)}}function tt(e,t){
var n=t-e;return n?js(e,n):Br(isNaN(e)?t:e)}var Fr=(function e(t){var n=ic(t);function r(i,s){var o=n((i=Pe(i)).r,(s=Pe(s)).r),a=n(i.g,s.g),u=n(i.b,s.b),l=tt(i.
opacity,s.opacity);return function(c){return i.r=o(c),i.g=a(c),i.b=u(c),i.opacity=l(c),i+""}}return r.gamma=e,r})(1);function Zs(e){return function(t){var n=t.length,
r=new Array(n),i=new Array(n),s=new Array(n),o,a;for(o=0;o<n;++o)a=Pe(t[o]),r[o]=a.r||0,i[o]=a.g||0,s[o]=a.b||0;return r=e(r),i=e(i),s=e(s),a.opacity=1,function(u){
return a.r=r(u),a.g=i(u),a.b=s(u),a+""}}}var nd=Zs(ec),rd=Zs(nc);function Ct(e,t){return e=+e,t=+t,function(n){return e*(1-n)+t*n}}var Ur=/[-+]?(?:\d+\.?\d*|\.?\d+)(?:[eE][-+]?\d+)?/g,Ir=new RegExp(Ur.source,"g");function sc(e){return function(){return e}}function oc(e){return function(t){return e(
t)+""}}function Qs(e,t){var n=Ur.lastIndex=Ir.lastIndex=0,r,i,s,o=-1,a=[],u=[];for(e=e+"",t=t+"";(r=Ur.exec(e))&&(i=Ir.exec(t));)(s=i.index)>n&&(s=t.slice(n,s),
a[o]?a[o]+=s:a[++o]=s),(r=r[0])===(i=i[0])?a[o]?a[o]+=i:a[++o]=i:(a[++o]=null,u.push({i:o,x:Ct(r,i)})),n=Ir.lastIndex;return n<t.length&&(s=t.slice(n),a[o]?a[o]+=
s:a[++o]=s),a.length<2?u[0]?oc(u[0].x):sc(t):(t=u.length,function(l){for(var c=0,h;c<t;++c)a[(h=u[c]).i]=h.x(l);return a.join("")})}var Ks=180/Math.PI,Dr={translateX:0,translateY:0,rotate:0,skewX:0,scaleX:1,scaleY:1};function Js(e,t,n,r,i,s){var o,a,u;return(o=Math.sqrt(e*e+t*t))&&(e/=o,t/=o),
(u=e*n+t*r)&&(n-=e*u,r-=t*u),(a=Math.sqrt(n*n+r*r))&&(n/=a,r/=a,u/=a),e*r<t*n&&(e=-e,t=-t,u=-u,o=-o),{translateX:i,translateY:s,rotate:Math.atan2(t,e)*Ks,skewX:Math.
atan(u)*Ks,scaleX:o,scaleY:a}}var Sn;function ac(e){let t=new(typeof DOMMatrix=="function"?DOMMatrix:WebKitCSSMatrix)(e+"");return t.isIdentity?Dr:Js(t.a,t.b,t.
c,t.d,t.e,t.f)}function uc(e){return e==null||(Sn||(Sn=document.createElementNS("http://www.w3.org/2000/svg","g")),Sn.setAttribute("transform",e),!(e=Sn.transform.
baseVal.consolidate()))?Dr:(e=e.matrix,Js(e.a,e.b,e.c,e.d,e.e,e.f))}function to(e,t,n,r){function i(l){return l.length?l.pop()+" ":""}function s(l,c,h,p,d,m){if(l!==
h||c!==p){var b=d.push("translate(",null,t,null,n);m.push({i:b-4,x:Ct(l,h)},{i:b-2,x:Ct(c,p)})}else(h||p)&&d.push("translate("+h+t+p+n)}function o(l,c,h,p){l!==
c?(l-c>180?c+=360:c-l>180&&(l+=360),p.push({i:h.push(i(h)+"rotate(",null,r)-2,x:Ct(l,c)})):c&&h.push(i(h)+"rotate("+c+r)}function a(l,c,h,p){l!==c?p.push({i:h.push(
i(h)+"skewX(",null,r)-2,x:Ct(l,c)}):c&&h.push(i(h)+"skewX("+c+r)}function u(l,c,h,p,d,m){if(l!==h||c!==p){var b=d.push(i(d)+"scale(",null,",",null,")");m.push({
i:b-4,x:Ct(l,h)},{i:b-2,x:Ct(c,p)})}else(h!==1||p!==1)&&d.push(i(d)+"scale("+h+","+p+")")}return function(l,c){var h=[],p=[];return l=e(l),c=e(c),s(l.translateX,
l.translateY,c.translateX,c.translateY,h,p),o(l.rotate,c.rotate,h,p),a(l.skewX,c.skewX,h,p),u(l.scaleX,l.scaleY,c.scaleX,c.scaleY,h,p),l=c=null,function(d){for(var m=-1,
b=p.length,v;++m<b;)h[(v=p[m]).i]=v.x(d);return h.join("")}}}var eo=to(ac,"px, ","px)","deg)"),no=to(uc,", ",")",")"),lc=1e-12;function Xs(e){return((e=Math.exp(
e))+1/e)/2}function cc(e){return((e=Math.exp(e))-1/e)/2}function fc(e){return((e=Math.exp(2*e))-1)/(e+1)}var ro=(function e(t,n,r){function i(s,o){var a=s[0],u=s[1],
l=s[2],c=o[0],h=o[1],p=o[2],d=c-a,m=h-u,b=d*d+m*m,v,g;if(b<lc)g=Math.log(p/l)/t,v=function(B){return[a+B*d,u+B*m,l*Math.exp(t*B*g)]};else{var w=Math.sqrt(b),x=(p*
p-l*l+r*b)/(2*l*n*w),M=(p*p-l*l-r*b)/(2*p*n*w),L=Math.log(Math.sqrt(x*x+1)-x),O=Math.log(Math.sqrt(M*M+1)-M);g=(O-L)/t,v=function(B){var Z=B*g,rt=Xs(L),V=l/(n*w)*
(rt*fc(t*Z+L)-cc(L));return[a+V*d,u+V*m,l*rt/Xs(t*Z+L)]}}return v.duration=Math.abs(g)*1e3*t/Math.SQRT2,v}return i.rho=function(s){var o=Math.max(.001,+s),a=o*o,
u=a*a;return e(o,a,u)},i})(Math.SQRT2,2,4);function io(e){return function(t,n){var r=e((t=xn(t)).h,(n=xn(n)).h),i=tt(t.s,n.s),s=tt(t.l,n.l),o=tt(t.opacity,n.opacity);
return function(a){return t.h=r(a),t.s=i(a),t.l=s(a),t.opacity=o(a),t+""}}}var id=io(zr),sd=io(tt);function so(e){return function(t,n){var r=e((t=kn(t)).h,(n=kn(n)).h),i=tt(t.c,n.c),s=tt(t.l,n.l),o=tt(t.opacity,n.opacity);return function(a){return t.h=r(a),t.
c=i(a),t.l=s(a),t.opacity=o(a),t+""}}}var od=so(zr),ad=so(tt);function oo(e){return(function t(n){n=+n;function r(i,s){var o=e((i=Mn(i)).h,(s=Mn(s)).h),a=tt(i.s,
s.s),u=tt(i.l,s.l),l=tt(i.opacity,s.opacity);return function(c){return i.h=o(c),i.s=a(c),i.l=u(Math.pow(c,n)),i.opacity=l(c),i+""}}return r.gamma=t,r})(1)}var ud=oo(
zr),ld=oo(tt);var be=0,Le=0,Te=0,uo=1e3,En,Ie,On=0,ne=0,Cn=0,Ue=typeof performance=="object"&&performance.now?performance:Date,lo=typeof window=="object"&&window.requestAnimationFrame?
window.requestAnimationFrame.bind(window):function(e){setTimeout(e,17)};function An(){return ne||(lo(hc),ne=Ue.now()+Cn)}function hc(){ne=0}function Nn(){this._call=
this._time=this._next=null}Nn.prototype=Vr.prototype={constructor:Nn,restart:function(e,t,n){if(typeof e!="function")throw new TypeError("callback is not a func\
tion");n=(n==null?An():+n)+(t==null?0:+t),!this._next&&Ie!==this&&(Ie?Ie._next=this:En=this,Ie=this),this._call=e,this._time=n,Rr()},stop:function(){this._call&&
(this._call=null,this._time=1/0,Rr())}};function Vr(e,t,n){var r=new Nn;return r.restart(e,t,n),r}function dc(){An(),++be;for(var e=En,t;e;)(t=ne-e._time)>=0&&e.
_call.call(void 0,t),e=e._next;--be}function ao(){ne=(On=Ue.now())+Cn,be=Le=0;try{dc()}finally{be=0,mc(),ne=0}}function pc(){var e=Ue.now(),t=e-On;t>uo&&(Cn-=t,
On=e)}function mc(){for(var e,t=En,n,r=1/0;t;)t._call?(r>t._time&&(r=t._time),e=t,t=t._next):(n=t._next,t._next=null,t=e?e._next=n:En=n);Ie=e,Rr(r)}function Rr(e){
if(!be){Le&&(Le=clearTimeout(Le));var t=e-ne;t>24?(e<1/0&&(Le=setTimeout(ao,Math.ceil(e-Ue.now()-Cn)+1)),Te&&(Te=clearInterval(Te))):(Te||(On=Ue.now(),Te=setInterval(
pc,uo)),be=1,lo(ao))}}function Gr(e,t,n){var r=new Nn;return t=t==null?0:+t,r.restart(i=>{r.stop(),e(i+t)},t,n),r}function fo(e){return((e*=2)<=1?e*e*e:(e-=2)*e*e+2)/2}var Wr=3,hd=(function e(t){t=+t;function n(r){return Math.pow(r,t)}return n.exponent=e,n})(Wr),dd=(function e(t){
t=+t;function n(r){return 1-Math.pow(1-r,t)}return n.exponent=e,n})(Wr),pd=(function e(t){t=+t;function n(r){return((r*=2)<=1?Math.pow(r,t):2-Math.pow(2-r,t))/2}
return n.exponent=e,n})(Wr),gc=Math.PI,md=gc/2;function Pn(e){return(Math.pow(2,-10*e)-.0009765625)*1.0009775171065494}var co=4/11,gd=6/11,bd=8/11,yd=3/4,vd=9/11,wd=10/11,_d=15/16,xd=21/22,kd=63/64,$d=1/co/co;var Hr=1.70158,Md=(function e(t){t=+t;function n(r){return(r=+r)*r*(t*(r-1)+r)}return n.overshoot=e,n})(Hr),Sd=(function e(t){t=+t;function n(r){return--r*r*((r+
1)*t+r)+1}return n.overshoot=e,n})(Hr),Ed=(function e(t){t=+t;function n(r){return((r*=2)<1?r*r*((t+1)*r-t):(r-=2)*r*((t+1)*r+t)+2)/2}return n.overshoot=e,n})(Hr),
ye=2*Math.PI,qr=1,Kr=.3,Od=(function e(t,n){var r=Math.asin(1/(t=Math.max(1,t)))*(n/=ye);function i(s){return t*Pn(- --s)*Math.sin((r-s)/n)}return i.amplitude=function(s){
return e(s,n*ye)},i.period=function(s){return e(t,s)},i})(qr,Kr),Nd=(function e(t,n){var r=Math.asin(1/(t=Math.max(1,t)))*(n/=ye);function i(s){return 1-t*Pn(s=
+s)*Math.sin((s+r)/n)}return i.amplitude=function(s){return e(s,n*ye)},i.period=function(s){return e(t,s)},i})(qr,Kr),Cd=(function e(t,n){var r=Math.asin(1/(t=Math.
max(1,t)))*(n/=ye);function i(s){return((s=s*2-1)<0?t*Pn(-s)*Math.sin((r-s)/n):2-t*Pn(s)*Math.sin((r+s)/n))/2}return i.amplitude=function(s){return e(s,n*ye)},i.
period=function(s){return e(t,s)},i})(qr,Kr);var bc=Oe("start","end","cancel","interrupt"),yc=[],mo=0,ho=1,Xr=2,Tn=3,po=4,Yr=5,Ln=6;function In(e,t,n,r,i,s){var o=e.__transition;if(!o)e.__transition={};else if(n in
o)return;vc(e,n,{name:t,index:r,group:i,on:bc,tween:yc,time:s.time,delay:s.delay,duration:s.duration,ease:s.ease,timer:null,state:mo})}function jr(e,t){var n=pt(
e,t);if(n.state>mo)throw new Error("too late; already scheduled");return n}function _t(e,t){var n=pt(e,t);if(n.state>Tn)throw new Error("too late; already runni\
ng");return n}function pt(e,t){var n=e.__transition;if(!n||!(n=n[t]))throw new Error("transition not found");return n}function vc(e,t,n){var r=e.__transition,i;
r[t]=n,n.timer=Vr(s,0,n.time);function s(l){n.state=ho,n.timer.restart(o,n.delay,n.time),n.delay<=l&&o(l-n.delay)}function o(l){var c,h,p,d;if(n.state!==ho)return u();
for(c in r)if(d=r[c],d.name===n.name){if(d.state===Tn)return Gr(o);d.state===po?(d.state=Ln,d.timer.stop(),d.on.call("interrupt",e,e.__data__,d.index,d.group),delete r[c]):
+c<t&&(d.state=Ln,d.timer.stop(),d.on.call("cancel",e,e.__data__,d.index,d.group),delete r[c])}if(Gr(function(){n.state===Tn&&(n.state=po,n.timer.restart(a,n.delay,
n.time),a(l))}),n.state=Xr,n.on.call("start",e,e.__data__,n.index,n.group),n.state===Xr){for(n.state=Tn,i=new Array(p=n.tween.length),c=0,h=-1;c<p;++c)(d=n.tween[c].
value.call(e,e.__data__,n.index,n.group))&&(i[++h]=d);i.length=h+1}}function a(l){for(var c=l<n.duration?n.ease.call(null,l/n.duration):(n.timer.restart(u),n.state=
Yr,1),h=-1,p=i.length;++h<p;)i[h].call(e,c);n.state===Yr&&(n.on.call("end",e,e.__data__,n.index,n.group),u())}function u(){n.state=Ln,n.timer.stop(),delete r[t];
for(var l in r)return;delete e.__transition}}function De(e,t){var n=e.__transition,r,i,s=!0,o;if(n){t=t==null?null:t+"";for(o in n){if((r=n[o]).name!==t){s=!1;continue}
i=r.state>Xr&&r.state<Yr,r.state=Ln,r.timer.stop(),r.on.call(i?"interrupt":"cancel",e,e.__data__,r.index,r.group),delete n[o]}s&&delete e.__transition}}function wc(e){
return this.each(function(){De(this,e)})}function _c(e,t){var n,r;return function(){var i=_t(this,e),s=i.tween;if(s!==n){r=n=s;for(var o=0,a=r.length;o<a;++o)if(r[o].
name===t){r=r.slice(),r.splice(o,1);break}}i.tween=r}}function xc(e,t,n){var r,i;if(typeof n!="function")throw new Error;return function(){var s=_t(this,e),o=s.
tween;if(o!==r){i=(r=o).slice();for(var a={name:t,value:n},u=0,l=i.length;u<l;++u)if(i[u].name===t){i[u]=a;break}u===l&&i.push(a)}s.tween=i}}function kc(e,t){var n=this.
_id;if(e+="",arguments.length<2){for(var r=pt(this.node(),n).tween,i=0,s=r.length,o;i<s;++i)if((o=r[i]).name===e)return o.value;return null}return this.each((t==
null?_c:xc)(n,e,t))}function Zr(e,t,n){var r=e._id;return e.each(function(){var i=_t(this,r);(i.value||(i.value={}))[t]=n.apply(this,arguments)}),function(i){return pt(
i,r).value[t]}}function go(e,t){var n;return(typeof t=="number"?Ct:t instanceof ee?Fr:(n=ee(t))?(t=n,Fr):Qs)(e,t)}function $c(e){return function(){this.removeAttribute(
e)}}function Mc(e){return function(){this.removeAttributeNS(e.space,e.local)}}function Sc(e,t,n){var r,i=n+"",s;return function(){var o=this.getAttribute(e);return o===
i?null:o===r?s:s=t(r=o,n)}}function Ec(e,t,n){var r,i=n+"",s;return function(){var o=this.getAttributeNS(e.space,e.local);return o===i?null:o===r?s:s=t(r=o,n)}}
function Oc(e,t,n){var r,i,s;return function(){var o,a=n(this),u;return a==null?void this.removeAttribute(e):(o=this.getAttribute(e),u=a+"",o===u?null:o===r&&u===
i?s:(i=u,s=t(r=o,a)))}}function Nc(e,t,n){var r,i,s;return function(){var o,a=n(this),u;return a==null?void this.removeAttributeNS(e.space,e.local):(o=this.getAttributeNS(
e.space,e.local),u=a+"",o===u?null:o===r&&u===i?s:(i=u,s=t(r=o,a)))}}function Cc(e,t){var n=Ee(e),r=n==="transform"?no:go;return this.attrTween(e,typeof t=="fun\
ction"?(n.local?Nc:Oc)(n,r,Zr(this,"attr."+e,t)):t==null?(n.local?Mc:$c)(n):(n.local?Ec:Sc)(n,r,t))}function Ac(e,t){return function(n){this.setAttribute(e,t.call(
this,n))}}function Pc(e,t){return function(n){this.setAttributeNS(e.space,e.local,t.call(this,n))}}function Tc(e,t){var n,r;function i(){var s=t.apply(this,arguments);
return s!==r&&(n=(r=s)&&Pc(e,s)),n}return i._value=t,i}function Lc(e,t){var n,r;function i(){var s=t.apply(this,arguments);return s!==r&&(n=(r=s)&&Ac(e,s)),n}return i.
_value=t,i}function Ic(e,t){var n="attr."+e;if(arguments.length<2)return(n=this.tween(n))&&n._value;if(t==null)return this.tween(n,null);if(typeof t!="function")
throw new Error;var r=Ee(e);return this.tween(n,(r.local?Tc:Lc)(r,t))}function Uc(e,t){return function(){jr(this,e).delay=+t.apply(this,arguments)}}function Dc(e,t){
return t=+t,function(){jr(this,e).delay=t}}function Bc(e){var t=this._id;return arguments.length?this.each((typeof e=="function"?Uc:Dc)(t,e)):pt(this.node(),t).
delay}function zc(e,t){return function(){_t(this,e).duration=+t.apply(this,arguments)}}function Fc(e,t){return t=+t,function(){_t(this,e).duration=t}}function Rc(e){
var t=this._id;return arguments.length?this.each((typeof e=="function"?zc:Fc)(t,e)):pt(this.node(),t).duration}function Vc(e,t){if(typeof t!="function")throw new Error;
return function(){_t(this,e).ease=t}}function Gc(e){var t=this._id;return arguments.length?this.each(Vc(t,e)):pt(this.node(),t).ease}function Wc(e,t){return function(){
var n=t.apply(this,arguments);if(typeof n!="function")throw new Error;_t(this,e).ease=n}}function Hc(e){if(typeof e!="function")throw new Error;return this.each(
Wc(this._id,e))}function qc(e){typeof e!="function"&&(e=kr(e));for(var t=this._groups,n=t.length,r=new Array(n),i=0;i<n;++i)for(var s=t[i],o=s.length,a=r[i]=[],
u,l=0;l<o;++l)(u=s[l])&&e.call(u,u.__data__,l,s)&&a.push(u);return new Pt(r,this._parents,this._name,this._id)}function Kc(e){if(e._id!==this._id)throw new Error;
for(var t=this._groups,n=e._groups,r=t.length,i=n.length,s=Math.min(r,i),o=new Array(r),a=0;a<s;++a)for(var u=t[a],l=n[a],c=u.length,h=o[a]=new Array(c),p,d=0;d<
c;++d)(p=u[d]||l[d])&&(h[d]=p);for(;a<r;++a)o[a]=t[a];return new Pt(o,this._parents,this._name,this._id)}function Xc(e){return(e+"").trim().split(/^|\s+/).every(
function(t){var n=t.indexOf(".");return n>=0&&(t=t.slice(0,n)),!t||t==="start"})}function Yc(e,t,n){var r,i,s=Xc(t)?jr:_t;return function(){var o=s(this,e),a=o.
on;a!==r&&(i=(r=a).copy()).on(t,n),o.on=i}}function jc(e,t){var n=this._id;return arguments.length<2?pt(this.node(),n).on.on(e):this.each(Yc(n,e,t))}function Zc(e){
return function(){var t=this.parentNode;for(var n in this.__transition)if(+n!==e)return;t&&t.removeChild(this)}}function Qc(){return this.on("end.remove",Zc(this.
_id))}function Jc(e){var t=this._name,n=this._id;typeof e!="function"&&(e=gn(e));for(var r=this._groups,i=r.length,s=new Array(i),o=0;o<i;++o)for(var a=r[o],u=a.
length,l=s[o]=new Array(u),c,h,p=0;p<u;++p)(c=a[p])&&(h=e.call(c,c.__data__,p,a))&&("__data__"in c&&(h.__data__=c.__data__),l[p]=h,In(l[p],t,n,p,l,pt(c,n)));return new Pt(
s,this._parents,t,n)}function tf(e){var t=this._name,n=this._id;typeof e!="function"&&(e=xr(e));for(var r=this._groups,i=r.length,s=[],o=[],a=0;a<i;++a)for(var u=r[a],
l=u.length,c,h=0;h<l;++h)if(c=u[h]){for(var p=e.call(c,c.__data__,h,u),d,m=pt(c,n),b=0,v=p.length;b<v;++b)(d=p[b])&&In(d,t,n,b,p,m);s.push(p),o.push(c)}return new Pt(
s,o,t,n)}var ef=jt.prototype.constructor;function nf(){return new ef(this._groups,this._parents)}function rf(e,t){var n,r,i;return function(){var s=Yt(this,e),o=(this.
style.removeProperty(e),Yt(this,e));return s===o?null:s===n&&o===r?i:i=t(n=s,r=o)}}function bo(e){return function(){this.style.removeProperty(e)}}function sf(e,t,n){
var r,i=n+"",s;return function(){var o=Yt(this,e);return o===i?null:o===r?s:s=t(r=o,n)}}function of(e,t,n){var r,i,s;return function(){var o=Yt(this,e),a=n(this),
u=a+"";return a==null&&(u=a=(this.style.removeProperty(e),Yt(this,e))),o===u?null:o===r&&u===i?s:(i=u,s=t(r=o,a))}}function af(e,t){var n,r,i,s="style."+t,o="en\
d."+s,a;return function(){var u=_t(this,e),l=u.on,c=u.value[s]==null?a||(a=bo(t)):void 0;(l!==n||i!==c)&&(r=(n=l).copy()).on(o,i=c),u.on=r}}function uf(e,t,n){var r=(e+=
"")=="transform"?eo:go;return t==null?this.styleTween(e,rf(e,r)).on("end.style."+e,bo(e)):typeof t=="function"?this.styleTween(e,of(e,r,Zr(this,"style."+e,t))).
each(af(this._id,e)):this.styleTween(e,sf(e,r,t),n).on("end.style."+e,null)}function lf(e,t,n){return function(r){this.style.setProperty(e,t.call(this,r),n)}}function cf(e,t,n){
var r,i;function s(){var o=t.apply(this,arguments);return o!==i&&(r=(i=o)&&lf(e,o,n)),r}return s._value=t,s}function ff(e,t,n){var r="style."+(e+="");if(arguments.
length<2)return(r=this.tween(r))&&r._value;if(t==null)return this.tween(r,null);if(typeof t!="function")throw new Error;return this.tween(r,cf(e,t,n??""))}function hf(e){
return function(){this.textContent=e}}function df(e){return function(){var t=e(this);this.textContent=t??""}}function pf(e){return this.tween("text",typeof e=="\
function"?df(Zr(this,"text",e)):hf(e==null?"":e+""))}function mf(e){return function(t){this.textContent=e.call(this,t)}}function gf(e){var t,n;function r(){var i=e.
apply(this,arguments);return i!==n&&(t=(n=i)&&mf(i)),t}return r._value=e,r}function bf(e){var t="text";if(arguments.length<1)return(t=this.tween(t))&&t._value;if(e==
null)return this.tween(t,null);if(typeof e!="function")throw new Error;return this.tween(t,gf(e))}function yf(){for(var e=this._name,t=this._id,n=yo(),r=this._groups,
i=r.length,s=0;s<i;++s)for(var o=r[s],a=o.length,u,l=0;l<a;++l)if(u=o[l]){var c=pt(u,t);In(u,e,n,l,o,{time:c.time+c.delay+c.duration,delay:0,duration:c.duration,
ease:c.ease})}return new Pt(r,this._parents,e,n)}function vf(){var e,t,n=this,r=n._id,i=n.size();return new Promise(function(s,o){var a={value:o},u={value:function(){
--i===0&&s()}};n.each(function(){var l=_t(this,r),c=l.on;c!==e&&(t=(e=c).copy(),t._.cancel.push(a),t._.interrupt.push(a),t._.end.push(u)),l.on=t}),i===0&&s()})}
var wf=0;function Pt(e,t,n,r){this._groups=e,this._parents=t,this._name=n,this._id=r}function _f(e){return jt().transition(e)}function yo(){return++wf}var At=jt.
prototype;Pt.prototype=_f.prototype={constructor:Pt,select:Jc,selectAll:tf,selectChild:At.selectChild,selectChildren:At.selectChildren,filter:qc,merge:Kc,selection:nf,
transition:yf,call:At.call,nodes:At.nodes,node:At.node,size:At.size,empty:At.empty,each:At.each,on:jc,attr:Cc,attrTween:Ic,style:uf,styleTween:ff,text:pf,textTween:bf,
remove:Qc,tween:kc,delay:Bc,duration:Rc,ease:Gc,easeVarying:Hc,end:vf,[Symbol.iterator]:At[Symbol.iterator]};var xf={time:null,delay:0,duration:250,ease:fo};function kf(e,t){
for(var n;!(n=e.__transition)||!(n=n[t]);)if(!(e=e.parentNode))throw new Error(`transition ${t} not found`);return n}function $f(e){var t,n;e instanceof Pt?(t=e.
_id,e=e._name):(t=yo(),(n=xf).time=An(),e=e==null?null:e+"");for(var r=this._groups,i=r.length,s=0;s<i;++s)for(var o=r[s],a=o.length,u,l=0;l<a;++l)(u=o[l])&&In(
u,e,t,l,o,n||kf(u,t));return new Pt(r,this._parents,e,t)}jt.prototype.interrupt=wc;jt.prototype.transition=$f;var Un=e=>()=>e;function Mf(e,{sourceEvent:t,target:n,transform:r,dispatch:i}){Object.defineProperties(this,{type:{value:e,enumerable:!0,configurable:!0},sourceEvent:{
value:t,enumerable:!0,configurable:!0},target:{value:n,enumerable:!0,configurable:!0},transform:{value:r,enumerable:!0,configurable:!0},_:{value:i}})}function Tt(e,t,n){
this.k=e,this.x=t,this.y=n}Tt.prototype={constructor:Tt,scale:function(e){return e===1?this:new Tt(this.k*e,this.x,this.y)},translate:function(e,t){return e===0&
t===0?this:new Tt(this.k,this.x+this.k*e,this.y+this.k*t)},apply:function(e){return[e[0]*this.k+this.x,e[1]*this.k+this.y]},applyX:function(e){return e*this.k+this.
x},applyY:function(e){return e*this.k+this.y},invert:function(e){return[(e[0]-this.x)/this.k,(e[1]-this.y)/this.k]},invertX:function(e){return(e-this.x)/this.k},
invertY:function(e){return(e-this.y)/this.k},rescaleX:function(e){return e.copy().domain(e.range().map(this.invertX,this).map(e.invert,e))},rescaleY:function(e){
return e.copy().domain(e.range().map(this.invertY,this).map(e.invert,e))},toString:function(){return"translate("+this.x+","+this.y+") scale("+this.k+")"}};var Rt=new Tt(
1,0,0);Sf.prototype=Tt.prototype;function Sf(e){for(;!e.__zoom;)if(!(e=e.parentNode))return Rt;return e.__zoom}function Qr(e){e.stopImmediatePropagation()}function Be(e){
e.preventDefault(),e.stopImmediatePropagation()}function Ef(e){return(!e.ctrlKey||e.type==="wheel")&&!e.button}function Of(){var e=this;return e instanceof SVGElement?
(e=e.ownerSVGElement||e,e.hasAttribute("viewBox")?(e=e.viewBox.baseVal,[[e.x,e.y],[e.x+e.width,e.y+e.height]]):[[0,0],[e.width.baseVal.value,e.height.baseVal.value]]):
[[0,0],[e.clientWidth,e.clientHeight]]}function vo(){return this.__zoom||Rt}function Nf(e){return-e.deltaY*(e.deltaMode===1?.05:e.deltaMode?1:.002)*(e.ctrlKey?10:
1)}function Cf(){return navigator.maxTouchPoints||"ontouchstart"in this}function Af(e,t,n){var r=e.invertX(t[0][0])-n[0][0],i=e.invertX(t[1][0])-n[1][0],s=e.invertY(
t[0][1])-n[0][1],o=e.invertY(t[1][1])-n[1][1];return e.translate(i>r?(r+i)/2:Math.min(0,r)||Math.max(0,i),o>s?(s+o)/2:Math.min(0,s)||Math.max(0,o))}function wo(){
var e=Ef,t=Of,n=Af,r=Nf,i=Cf,s=[0,1/0],o=[[-1/0,-1/0],[1/0,1/0]],a=250,u=ro,l=Oe("start","zoom","end"),c,h,p,d=500,m=150,b=0,v=10;function g(y){y.property("__zo\
om",vo).on("wheel.zoom",Z,{passive:!1}).on("mousedown.zoom",rt).on("dblclick.zoom",V).filter(i).on("touchstart.zoom",j).on("touchmove.zoom",G).on("touchend.zoom\
 touchcancel.zoom",q).style("-webkit-tap-highlight-color","rgba(0,0,0,0)")}g.transform=function(y,k,_,$){var S=y.selection?y.selection():y;S.property("__zoom",vo),
y!==S?L(y,k,_,$):S.interrupt().each(function(){O(this,arguments).event($).start().zoom(null,typeof k=="function"?k.apply(this,arguments):k).end()})},g.scaleBy=function(y,k,_,$){
g.scaleTo(y,function(){var S=this.__zoom.k,C=typeof k=="function"?k.apply(this,arguments):k;return S*C},_,$)},g.scaleTo=function(y,k,_,$){g.transform(y,function(){
var S=t.apply(this,arguments),C=this.__zoom,P=_==null?M(S):typeof _=="function"?_.apply(this,arguments):_,U=C.invert(P),R=typeof k=="function"?k.apply(this,arguments):
k;return n(x(w(C,R),P,U),S,o)},_,$)},g.translateBy=function(y,k,_,$){g.transform(y,function(){return n(this.__zoom.translate(typeof k=="function"?k.apply(this,arguments):
k,typeof _=="function"?_.apply(this,arguments):_),t.apply(this,arguments),o)},null,$)},g.translateTo=function(y,k,_,$,S){g.transform(y,function(){var C=t.apply(
this,arguments),P=this.__zoom,U=$==null?M(C):typeof $=="function"?$.apply(this,arguments):$;return n(Rt.translate(U[0],U[1]).scale(P.k).translate(typeof k=="fun\
ction"?-k.apply(this,arguments):-k,typeof _=="function"?-_.apply(this,arguments):-_),C,o)},$,S)};function w(y,k){return k=Math.max(s[0],Math.min(s[1],k)),k===y.
k?y:new Tt(k,y.x,y.y)}function x(y,k,_){var $=k[0]-_[0]*y.k,S=k[1]-_[1]*y.k;return $===y.x&&S===y.y?y:new Tt(y.k,$,S)}function M(y){return[(+y[0][0]+ +y[1][0])/
2,(+y[0][1]+ +y[1][1])/2]}function L(y,k,_,$){y.on("start.zoom",function(){O(this,arguments).event($).start()}).on("interrupt.zoom end.zoom",function(){O(this,arguments).
event($).end()}).tween("zoom",function(){var S=this,C=arguments,P=O(S,C).event($),U=t.apply(S,C),R=_==null?M(U):typeof _=="function"?_.apply(S,C):_,mt=Math.max(
U[1][0]-U[0][0],U[1][1]-U[0][1]),K=S.__zoom,st=typeof k=="function"?k.apply(S,C):k,xt=u(K.invert(R).concat(mt/K.k),st.invert(R).concat(mt/st.k));return function(ot){
if(ot===1)ot=st;else{var kt=xt(ot),Fn=mt/kt[2];ot=new Tt(Fn,R[0]-kt[0]*Fn,R[1]-kt[1]*Fn)}P.zoom(null,ot)}})}function O(y,k,_){return!_&&y.__zooming||new B(y,k)}
function B(y,k){this.that=y,this.args=k,this.active=0,this.sourceEvent=null,this.extent=t.apply(y,k),this.taps=0}B.prototype={event:function(y){return y&&(this.
sourceEvent=y),this},start:function(){return++this.active===1&&(this.that.__zooming=this,this.emit("start")),this},zoom:function(y,k){return this.mouse&&y!=="mo\
use"&&(this.mouse[1]=k.invert(this.mouse[0])),this.touch0&&y!=="touch"&&(this.touch0[1]=k.invert(this.touch0[0])),this.touch1&&y!=="touch"&&(this.touch1[1]=k.invert(
this.touch1[0])),this.that.__zoom=k,this.emit("zoom"),this},end:function(){return--this.active===0&&(delete this.that.__zooming,this.emit("end")),this},emit:function(y){
var k=Y(this.that).datum();l.call(y,this.that,new Mf(y,{sourceEvent:this.sourceEvent,target:g,transform:this.that.__zoom,dispatch:l}),k)}};function Z(y,...k){if(!e.
apply(this,arguments))return;var _=O(this,k).event(y),$=this.__zoom,S=Math.max(s[0],Math.min(s[1],$.k*Math.pow(2,r.apply(this,arguments)))),C=Ot(y);if(_.wheel)(_.
mouse[0][0]!==C[0]||_.mouse[0][1]!==C[1])&&(_.mouse[1]=$.invert(_.mouse[0]=C)),clearTimeout(_.wheel);else{if($.k===S)return;_.mouse=[C,$.invert(C)],De(this),_.start()}
Be(y),_.wheel=setTimeout(P,m),_.zoom("mouse",n(x(w($,S),_.mouse[0],_.mouse[1]),_.extent,o));function P(){_.wheel=null,_.end()}}function rt(y,...k){if(p||!e.apply(
this,arguments))return;var _=y.currentTarget,$=O(this,k,!0).event(y),S=Y(y.view).on("mousemove.zoom",R,!0).on("mouseup.zoom",mt,!0),C=Ot(y,_),P=y.clientX,U=y.clientY;
xs(y.view),Qr(y),$.mouse=[C,this.__zoom.invert(C)],De(this),$.start();function R(K){if(Be(K),!$.moved){var st=K.clientX-P,xt=K.clientY-U;$.moved=st*st+xt*xt>b}$.
event(K).zoom("mouse",n(x($.that.__zoom,$.mouse[0]=Ot(K,_),$.mouse[1]),$.extent,o))}function mt(K){S.on("mousemove.zoom mouseup.zoom",null),ks(K.view,$.moved),Be(
K),$.event(K).end()}}function V(y,...k){if(e.apply(this,arguments)){var _=this.__zoom,$=Ot(y.changedTouches?y.changedTouches[0]:y,this),S=_.invert($),C=_.k*(y.shiftKey?
.5:2),P=n(x(w(_,C),$,S),t.apply(this,k),o);Be(y),a>0?Y(this).transition().duration(a).call(L,P,$,y):Y(this).call(g.transform,P,$,y)}}function j(y,...k){if(e.apply(
this,arguments)){var _=y.touches,$=_.length,S=O(this,k,y.changedTouches.length===$).event(y),C,P,U,R;for(Qr(y),P=0;P<$;++P)U=_[P],R=Ot(U,this),R=[R,this.__zoom.
invert(R),U.identifier],S.touch0?!S.touch1&&S.touch0[2]!==R[2]&&(S.touch1=R,S.taps=0):(S.touch0=R,C=!0,S.taps=1+!!c);c&&(c=clearTimeout(c)),C&&(S.taps<2&&(h=R[0],
c=setTimeout(function(){c=null},d)),De(this),S.start())}}function G(y,...k){if(this.__zooming){var _=O(this,k).event(y),$=y.changedTouches,S=$.length,C,P,U,R;for(Be(
y),C=0;C<S;++C)P=$[C],U=Ot(P,this),_.touch0&&_.touch0[2]===P.identifier?_.touch0[0]=U:_.touch1&&_.touch1[2]===P.identifier&&(_.touch1[0]=U);if(P=_.that.__zoom,_.
touch1){var mt=_.touch0[0],K=_.touch0[1],st=_.touch1[0],xt=_.touch1[1],ot=(ot=st[0]-mt[0])*ot+(ot=st[1]-mt[1])*ot,kt=(kt=xt[0]-K[0])*kt+(kt=xt[1]-K[1])*kt;P=w(P,
Math.sqrt(ot/kt)),U=[(mt[0]+st[0])/2,(mt[1]+st[1])/2],R=[(K[0]+xt[0])/2,(K[1]+xt[1])/2]}else if(_.touch0)U=_.touch0[0],R=_.touch0[1];else return;_.zoom("touch",
n(x(P,U,R),_.extent,o))}}function q(y,...k){if(this.__zooming){var _=O(this,k).event(y),$=y.changedTouches,S=$.length,C,P;for(Qr(y),p&&clearTimeout(p),p=setTimeout(
function(){p=null},d),C=0;C<S;++C)P=$[C],_.touch0&&_.touch0[2]===P.identifier?delete _.touch0:_.touch1&&_.touch1[2]===P.identifier&&delete _.touch1;if(_.touch1&&
!_.touch0&&(_.touch0=_.touch1,delete _.touch1),_.touch0)_.touch0[1]=this.__zoom.invert(_.touch0[0]);else if(_.end(),_.taps===2&&(P=Ot(P,this),Math.hypot(h[0]-P[0],
h[1]-P[1])<v)){var U=Y(this).on("dblclick.zoom");U&&U.apply(this,arguments)}}}return g.wheelDelta=function(y){return arguments.length?(r=typeof y=="function"?y:
Un(+y),g):r},g.filter=function(y){return arguments.length?(e=typeof y=="function"?y:Un(!!y),g):e},g.touchable=function(y){return arguments.length?(i=typeof y=="\
function"?y:Un(!!y),g):i},g.extent=function(y){return arguments.length?(t=typeof y=="function"?y:Un([[+y[0][0],+y[0][1]],[+y[1][0],+y[1][1]]]),g):t},g.scaleExtent=
function(y){return arguments.length?(s[0]=+y[0],s[1]=+y[1],g):[s[0],s[1]]},g.translateExtent=function(y){return arguments.length?(o[0][0]=+y[0][0],o[1][0]=+y[1][0],
o[0][1]=+y[0][1],o[1][1]=+y[1][1],g):[[o[0][0],o[0][1]],[o[1][0],o[1][1]]]},g.constrain=function(y){return arguments.length?(n=y,g):n},g.duration=function(y){return arguments.
length?(a=+y,g):a},g.interpolate=function(y){return arguments.length?(u=y,g):u},g.on=function(){var y=l.on.apply(l,arguments);return y===l?g:y},g.clickDistance=
function(y){return arguments.length?(b=(y=+y)*y,g):Math.sqrt(b)},g.tapDistance=function(y){return arguments.length?(v=+y,g):v},g}var Dn=30,xo=1.15,Jr=e=>Math.floor(Math.log(e)/Math.log(xo)+1e-6),_o=e=>xo**e,Bn=class e extends W{state={window:null};svg=at();world=at();zooming;transform=Rt;drawn=null;places=new WeakMap;lit=[];lastFold=null;measured=[
1,1];watcher=new ResizeObserver(()=>this.resized());componentDidMount(){this.props.mounted(this);let t=this.svg.current;this.zooming=wo().scaleExtent([.015,4]).
filter(n=>n.type==="wheel"?n.ctrlKey||n.metaKey:!n.button).on("zoom",n=>{this.transform=n.transform,this.world.current.setAttribute("transform",n.transform.toString()),
this.lookAround(),this.holdNames()}),Y(t).call(this.zooming).on("dblclick.zoom",null),t.addEventListener("wheel",n=>{if(n.ctrlKey||n.metaKey)return;n.preventDefault();
let r=n.deltaMode?16:1,[i,s]=n.shiftKey?[n.deltaY,0]:[n.deltaX,n.deltaY];this.moveBy(-i*r/this.transform.k,-s*r/this.transform.k)},{passive:!1}),this.watcher.observe(
t),this.resized(),this.fit(),this.brighten()}componentWillUnmount(){this.watcher.disconnect()}brighten(){for(let n of this.lit)n.classList.remove("bright");let t=new Set(
[...this.props.lit?.lines??[]].map(n=>n.key));this.lit=t.size?[...this.world.current.querySelectorAll(".base [data-line]")].filter(n=>t.has(n.dataset.line)):[];
for(let n of this.lit)n.classList.add("bright")}holdNames(){let t=this.transform.invertX(8);for(let n of this.world.current.querySelectorAll("[data-slack]")){let r=Math.
min(Number(n.dataset.slack),t-Number(n.getAttribute("x")));n.setAttribute("transform",`translate(${Math.max(0,r)})`)}}componentDidUpdate(t){if(this.brighten(),this.
holdNames(),t.model!==this.props.model)this.fit();else if(t.scene!==this.props.scene){let n=this.lastFold&&[t.scene,this.props.scene].map(r=>r.byUnit.get(-this.
lastFold.frame-1));n?.[0]&&n[1]&&this.moveBy(n[0].mid-n[1].mid,n[0].y-n[1].y),this.lookAround()}}size(){return this.measured}resized(){let{clientWidth:t,clientHeight:n}=this.
svg.current;this.measured=[Math.max(1,t),Math.max(1,n)],this.lookAround()}moveBy(t,n){(t||n)&&this.zooming.translateBy(Y(this.svg.current),t,n)}scaleBy(t){this.
zooming.scaleBy(Y(this.svg.current),t)}fit(){let{left:t,right:n,height:r}=this.props.scene,[i,s]=this.size(),o=Me(i),a=(i-2*o)/(n-t),u=(s-2*Dn)/r,l=Math.max(Math.
min(a,u,1.15),Math.min(a,.85),nn),c=a<l?Math.min(o-t*l,Math.max(i-o-n*l,i/2)):i/2-(t+n)/2*l,h=r*l<s-2*Dn?(s-r*l)/2:Dn;this.zooming.transform(Y(this.svg.current),
Rt.translate(c,h).scale(l))}fitAll(){let{left:t,right:n,height:r}=this.props.scene,[i,s]=this.size(),o=Math.min((i-2*Me(i))/(n-t),(s-2*Dn)/r,1.15),[a,u]=[i/2-(t+
n)/2*o,s/2-r/2*o];this.zooming.transform(Y(this.svg.current),Rt.translate(a,u).scale(o))}show(t){let n=this.props.scene.byUnit.get(t);if(!n)return;let[r,i]=this.
size(),{k:s}=this.transform,[o,a]=this.transform.apply([n.mid,n.y]);if(o>60&&o<r-60&&a>30&&a+Math.min(n.h*s,i/2)<i-20&&s>=.45)return;let l=Math.max(s,.8),c=n.y+
Math.min(n.h,i/l)/2;this.zooming.transform(Y(this.svg.current),Rt.translate(r/2-n.mid*l,i/2-c*l).scale(l))}lookAround(){let[t,n]=this.size(),{k:r}=this.transform,
[i,s]=this.transform.invert([0,0]),o=this.state.window,[a,u]=[t/r,n/r];o&&o.grade===Jr(r)&&i>=o.x&&s>=o.y&&i+a<=o.x+o.w&&s+u<=o.y+o.h||this.setState({window:{x:i-
a/2,y:s-u/2,w:2*a,h:2*u,grade:Jr(r)}})}static within(t,n){let{x:r,y:i,w:s,h:o}=n,a=(c,h,p,d)=>c<r+s&&h<i+o&&c+p>r&&h+d>i,u=t.boxes.filter(c=>a(c.x-120,c.y,c.w+240,
c.h)),l=new Map;for(let c of t.lines){let[h,p,d,m]=c.box;if(!a(h-20,p,d+40,m))continue;let b=l.get(c.within);b?b.push(c):l.set(c.within,[c])}return{boxes:u,lines:l}}placesAt(t){
let{model:n,scene:r}=this.props,i=un(t),s=this.places.get(r)??new Map;return this.places.set(r,s),s.has(i)||s.set(i,new Je(n,r,i,dr)),s.get(i)}labelsAt(t,n){return t.
near?this.placesAt(t).labels.filter(({line:r})=>Se(r,n)):[]}drawnIn(t){let{model:n,opened:r,scene:i,marks:s}=this.props,o=hr(_o(t.grade)),a=ir(i,o.least),{x:u,y:l,
w:c,h}=t,p=this.labelsAt(o,a).filter(d=>d.x>u-160&&d.x<u+c&&d.y>l&&d.y<l+h+20);return f(Zi,{model:n,opened:r,marks:s,detail:o,shown:a,labels:p,...e.within(i,t)})}visible(){
let[t,n]=this.size(),{k:r}=this.transform,[i,s]=this.transform.invert([0,0]),o={x:i,y:s,w:t/r,h:n/r,grade:Jr(r)};return{...o,node:this.drawnIn(o)}}base(t){let{model:n,
scene:r,marks:i}=this.props,s=[n,r,i.matches,t];if(this.drawn?.key.every((a,u)=>a===s[u]))return this.drawn.node;let o=this.drawnIn(t);return this.drawn={key:s,
node:o},o}overlay(t,n){let{model:r,opened:i,scene:s,marks:o}=this.props,a=hr(_o(n.grade)),u=ir(s,a.least),l=un(a),c=new Map;for(let[d,m]of t.units){let b=s.byUnit.
get(d);for(;b&&!u.units.has(b.unit);)b=s.byUnit.get(b.around);b&&c.get(b)!=="self"&&c.set(b,m)}let h=a.near?[...t.lines].filter(d=>d.side==="bridge"&&Se(d,u)):[],
p=h.length?this.placesAt(a).of(h):[];return f("g",{class:"overlay",children:[[...c].map(([d,m])=>d.kind==="open"?f("rect",{class:"ring",x:d.x,y:d.y,width:d.w,height:d.
h,rx:8},d.unit):f(mr,{model:r,opened:i,box:d,detail:a,marks:o,role:`is-${m}`},d.unit)),p.map(d=>f(pr,{label:d,size:l,bright:!0},d.line.key))]})}at(t){let n=t.target,
r=s=>{let o=n.closest(`[data-${s}]`)?.getAttribute(`data-${s}`);return o==null?null:Number(o)},i=r("loop");return{unit:r("unit"),fold:r("fold"),turn:i===null?null:
[i,r("turn")]}}clicked=t=>{let{unit:n,fold:r,turn:i}=this.at(t),{scene:s}=this.props;if(t.detail>1)return;if(this.lastFold=null,i)return this.props.onTurn(...i);
let o=n!==null&&s.byUnit.get(n)?.kind==="folded"?-n-1:r;if(o===null)return this.props.onClick(n);this.lastFold={frame:o,when:t.timeStamp},this.props.onFold(o)};doubled=t=>{
this.lastFold&&t.timeStamp-this.lastFold.when<700&&this.props.onOpenAll(this.lastFold.frame)};hold(t){this.lastFold?.frame!==t&&(this.lastFold={frame:t,when:-1/0})}render({
scene:t,lit:n,pinned:r,onHover:i}){let s=this.state.window;return f("svg",{ref:this.svg,class:`picture${r?" pinned":""}`,tabindex:0,role:"application","aria-lab\
el":"forward and backward","data-boxes":t.boxes.length,onClick:this.clicked,onDblClick:this.doubled,onMouseOver:o=>i(this.at(o).unit),onMouseLeave:()=>i(null),children:[
f(ln,{}),f("g",{ref:this.world,children:[f("g",{class:"base",children:s&&this.base(s)}),s&&n&&this.overlay(n,s)]})]})}};function ko(e,t){let n=new Map,{product:r,other:i,read:s,written:o}=e.data.nodes;for(let a=0;a<e.count;a++){let u=t(a),l=e.isForward(a)?0:1,c=n.get(u)??{name:u,
steps:[0,0],flops:[0,0],bytes:[0,0]};n.set(u,c),c.steps[l]++,c.flops[l]+=r[a]+i[a],c.bytes[l]+=s[a]+o[a]}return[...n.values()]}var $o=new WeakMap;function So({model:e,
search:t}){let n=$o.get(e)??{kinds:ko(e,i=>e.kinds[i]),operators:ko(e,i=>e.shorts[i])};$o.set(e,n);let r=Pf(n.kinds);return f("div",{class:"panel",children:[f("\
h2",{children:"Operators"}),f("p",{class:"soft",children:`Forward ${Ut(r.flops[0])}, ${A(r.bytes[0])} read and written. Backward ${Ut(r.flops[1])}, ${A(r.bytes[1])}\
.`}),f(Mo,{title:"kind",prefix:"kind:",rows:n.kinds,search:t}),f(Mo,{title:"operator",prefix:"op:",rows:n.operators,search:t})]})}function Pf(e){let t=n=>[0,1].
map(r=>e.reduce((i,s)=>i+s[n][r],0));return{name:"",steps:t("steps"),flops:t("flops"),bytes:t("bytes")}}function Mo({title:e,prefix:t,rows:n,search:r}){let i=a=>Math.
max(1,...n.flatMap(u=>u[a])),s=(a,u)=>{let l=i(a);return c=>f("span",{class:"pair",children:[f("span",{children:[f(an,{share:c[a][0]/l,side:"forward"}),u(c[a][0])]}),
f("span",{children:[f(an,{share:c[a][1]/l,side:"backward"}),u(c[a][1])]})]})},o=[{name:e,value:a=>a.name,cell:a=>f("button",{class:"link",onClick:()=>r(`${t}${a.
name}`),children:f("bdi",{children:a.name})})},{name:"steps",value:a=>a.steps[0]+a.steps[1],cell:a=>f("span",{class:"pair",children:[f("span",{children:E(a.steps[0])}),
f("span",{children:E(a.steps[1])})]})},{name:"FLOPs",value:a=>a.flops[0]+a.flops[1],cell:s("flops",se)},{name:"bytes",value:a=>a.bytes[0]+a.bytes[1],cell:s("byt\
es",A)}];return f(ft,{columns:o,rows:n,sort:[2,-1],empty:"There is no step."})}function Tf(e){let t=new Map,{nodes:n,sources:r,saved:i}=e.data;for(let[s,,,o]of i){
let a=s<e.count?r[n.source[s]]:void 0,u=s>=e.count?"inputs and parameters":e.lineOf(s)||"no source line",l=t.get(u)??{line:u,code:a?e.text(a[3]):"",bytes:0,values:[]};
t.set(u,l),l.bytes+=o,l.values.push(s)}return[...t.values()]}function Eo({model:e,go:t,search:n}){let r=Tf(e),i=r.reduce((a,u)=>a+u.bytes,0),s=Math.max(1,...r.map(
a=>a.bytes)),o=[{name:"source line",value:a=>a.line,cell:a=>f("span",{children:[a.line.includes(":")?f("button",{class:"link",title:a.line,onClick:()=>n(`line:${a.
line}`),children:f("bdi",{children:a.line.split("/").at(-1)})}):a.line,f("code",{class:"soft",children:f("bdi",{children:a.code})})]})},{name:"saved",value:a=>a.
bytes,cell:a=>f("span",{children:[f(an,{share:a.bytes/s,side:"saved"})," ",A(a.bytes)]})},{name:"values",value:a=>a.values.length,cell:a=>f("span",{children:[E(
a.values.length)," ",f(yt,{model:e,value:a.values[0],go:t})]})}];return f("div",{class:"panel",children:[f("h2",{children:"Saved, by source line"}),f("p",{class:"\
soft",children:`${A(i)} that the caller does not hold anyway. A value that shares memory with another counts once.`}),f(ft,{columns:o,rows:r,sort:[1,-1],empty:"\
Nothing is saved."})]})}function Oo({model:e,go:t}){let n=new Map;for(let h of e.data.ports)!h.into&&h.role==="gradient"&&n.set(h.value,e.text(h.name));let{value:r,
rows:i}=e.data.stats,s=r.map((h,p)=>({value:h,gradient:n.get(h)??"",row:i[p]})),o=(h,p)=>({name:h,value:d=>d.row[p]??NaN,cell:d=>f("span",{class:(p===6||p===7)&&
d.row[p]?"alarm":"",children:Dt(d.row[p])})}),a=[{name:"value",value:h=>h.gradient||e.nameOf(h.value),cell:h=>f("span",{children:[h.gradient&&f("span",{class:"t\
ag",children:["gradient of ",f("bdi",{children:h.gradient})]}),f(yt,{model:e,value:h.value,go:t})]})},o("NaN",6),o("Inf",7),o("norm",5),o("mean",3),o("std",4),o(
"min",1),o("max",2),o("zeros",8),o("count",0)],u=s.filter(h=>h.row[6]||h.row[7]).length,l=s.filter(h=>h.gradient),c=s.filter(h=>!h.gradient);return f("div",{class:"\
panel",children:[f("h2",{children:"Values"}),f("p",{class:u?"alarm":"soft",children:u?`${E(u)} of ${E(s.length)} measured values have NaN or Inf.`:`No NaN and n\
o Inf in ${E(s.length)} measured values.`}),l.length>0&&f("h3",{children:"Gradients"}),l.length>0&&f(ft,{columns:a,rows:l,sort:[u?1:3,-1],empty:""}),f("h3",{children:"\
Other values"}),f(ft,{columns:a,rows:c,sort:[u?1:3,-1],empty:"No other value was measured."})]})}function No({model:e,go:t}){let n=new Map,{own:[,r]}=e.savedSum();
for(let s of e.data.ports)_e(n,`${s.side?"Backward":"Forward"} ${s.into?"takes":"gives"}: ${s.role}`).push(s);let i=[{name:"name",value:s=>e.text(s.name),cell:s=>f(
"bdi",{children:e.text(s.name)})},{name:"type",value:s=>e.text(s.spec),cell:s=>f("code",{children:e.text(s.spec)})},{name:"bytes",value:s=>s.bytes,cell:s=>A(s.bytes)},
{name:"step",value:s=>s.into?e.usersOf(s.value)[0]??-1:s.value,cell:s=>{let o=s.into?e.usersOf(s.value)[0]:s.value;return o===void 0?f("span",{class:"soft",children:"\
unused"}):f(yt,{model:e,value:o,go:t})}}];return f("div",{class:"panel",children:[f("h2",{children:"Inputs and outputs"}),[...n].map(([s,o])=>f("details",{open:o.
length<=12,children:[f("summary",{children:[s," ",f("span",{class:"soft",children:[E(o.length),", ",A(o.reduce((a,u)=>a+u.bytes,0)),o[0].role==="saved"&&`, of w\
hich ${A(r)} in memory that nothing else has`]})]}),f(ft,{columns:i,rows:o,sort:[2,-1],empty:""})]},s))]})}var Co=430,Lf=[["changes","Changes","h"],["details","Details","d"],["code","Code","c"],["memory","Memory","m"],["lines","Lines","l"],["operators","Operators","o"],
["values","Values","v"],["ports","In/out","i"]],zn=class extends W{picture;finder;searchers=new Map;keep=new Map;timer=0;marking=0;changes=ki(this.props.models);lastChange=-1;state={
...this.begin(location.hash),hovered:null,query:"",found:null,marked:null,at:-1,moment:null,tab:this.props.page.changes?"changes":"details",help:!1,told:"",wide:Co};begin(t){
let{models:n}=this.props,{pair:r,unit:i,opened:s}=zi(t,n),o=n[r],a=s??this.first(o);return{pair:r,selected:i,opened:i===null||s?a:on(o,a,i)}}first(t){let n=innerWidth>
760?innerWidth-(this.state?.wide??Co)-5:innerWidth;return Ti(t,n-2*Me(n))}get model(){return this.props.models[this.state.pair]}get scene(){return this.kept("sc\
ene",[this.model,this.state.opened],()=>sn(this.model,this.state.opened))}get searcher(){let{model:t}=this;return this.searchers.has(t)||this.searchers.set(t,new fn(
t)),this.searchers.get(t)}kept(t,n,r){let i=this.keep.get(t);if(i&&i.key.length===n.length&&i.key.every((o,a)=>o===n[a]))return i.value;let s=r();return this.keep.
set(t,{key:n,value:s}),s}componentDidMount(){document.addEventListener("keydown",this.pressed),addEventListener("hashchange",this.followed),setTimeout(()=>this.
searcher,300),this.state.selected!==null&&this.picture.show(this.visible(this.state.selected))}componentWillUnmount(){document.removeEventListener("keydown",this.
pressed),removeEventListener("hashchange",this.followed)}componentDidUpdate(t,n){let{pair:r,selected:i,opened:s}=this.state;n.pair===r&&n.selected===i&&n.opened===
s||(clearTimeout(this.timer),location.protocol!=="about:"&&(this.timer=window.setTimeout(()=>history.replaceState(null,"",sr(r,i,s)),250)))}followed=t=>{clearTimeout(
this.timer);let n=this.begin(new URL(t.newURL).hash);this.setState(n,()=>n.selected!==null&&this.picture.show(this.visible(n.selected)))};visible(t){return St(this.
model,this.scene,t)}go=t=>{let n=this.scene.byUnit.has(t)?this.state.opened:on(this.model,this.state.opened,t);this.setState({opened:n,selected:t,hovered:null,...this.
momentOf(t)},()=>this.picture.show(this.visible(t)))};momentOf(t){return t!==null&&t>=0&&this.state.tab!=="memory"?{moment:null}:{}}select=t=>{let{tab:n}=this.state,
r=t===F(0)?null:t;this.setState({selected:r,told:"",tab:n==="changes"&&r!==null?"details":n})};fold=t=>{this.picture.hold(t);let n=Ui(this.model,this.state.opened,
t),r=this.state.selected,i=r!==null&&!Kt(this.model,n,t)&&this.model.above(r).includes(t);this.setState({opened:n,selected:t===0?this.state.selected:i||r===null||
r<0?F(t):r})};openAll=t=>{this.picture.hold(t),this.setState({opened:Di(this.model,this.state.opened,t),selected:t===0?null:F(t)})};turn=(t,n)=>{this.picture.hold(
t);let{model:r}=this,{selected:i}=this.state,s=Bi(r,this.state.opened,t,n);this.setState({opened:s,selected:i!==null&&r.above(i).includes(t)?this.sameIn(t,s,i):
i})};sameIn(t,n,r){let{model:i}=this,s=[r,...i.above(r).map(F)],o=s.indexOf(F(t)),a=i.frame(t).units[zt(i,n,t)];for(let u of s.slice(0,o-1).reverse()){let l=u<0?
i.framePlace[-u-1]:i.place[u],c=a<0?i.frame(-a-1).units[l]:void 0;if(c===void 0)return F(t);a=c}return a}depth=t=>this.setState({opened:Li(this.model,this.state.
opened,t)},()=>{this.state.selected!==null?this.picture.show(this.visible(this.state.selected)):this.picture.fit()});search=t=>{let n=this.searcher.find(t);this.
setState({query:t,found:n,at:-1}),clearTimeout(this.marking),this.marking=window.setTimeout(()=>this.setState({marked:n}),90)};ask=t=>{this.search(t),this.finder.
focus()};goMatch=t=>{let n=this.state.found.units[t];this.setState({at:t}),this.go(n)};nextMatch(t){let{found:n,at:r}=this.state,i=n?.units.length??0;i&&this.goMatch(
r<0?t>0?0:i-1:(r+t+i)%i)}moment=t=>this.setState({moment:t,tab:"memory"});exported=()=>{let t=this.props.page.title.replace(/[^\w.-]+/g,"_").slice(0,60)||"graph";
Ji(`${t}.svg`,Qi(this.picture,this.props.page.title))};link=()=>{let{pair:t,selected:n,opened:r}=this.state,i=location.href.replace(/#.*$/,"")+sr(t,n,r);ts(i).then(
s=>this.setState({told:s}))};choose=t=>{let n=this.first(this.props.models[t]);this.setState({pair:t,opened:n,selected:null,hovered:null,query:"",found:null,marked:null,
at:-1,moment:null})};jump=(t,n)=>{if(t===this.state.pair)return this.go(n);let r=this.props.models[t];this.choose(t),this.setState({opened:on(r,this.first(r),n),
selected:n},()=>this.picture.show(this.visible(n)))};nextChange(t){let{changes:n}=this,{pair:r,selected:i}=this.state,s=Yn(n,this.props.models,r,i);if(!n.length)
return;let o=s<0?this.lastChange:s;this.lastChange=o<0?t>0?0:n.length-1:(o+t+n.length)%n.length,this.jump(n[this.lastChange].pair,n[this.lastChange].node)}turnAround(t){
let{selected:n,opened:r}=this.state,s=(n===null?[]:[...n<0?[-n-1]:[],...this.model.above(n)]).find(o=>this.model.frame(o).kind==="loop")??this.onlyLoop();s!==void 0&&
this.turn(s,zt(this.model,r,s)+t)}onlyLoop(){let t=this.scene.boxes.filter(n=>n.unit<0&&this.model.frame(-n.unit-1).kind==="loop");return t.length?-t[0].unit-1:
void 0}pressed=t=>{let n=t.target;if(t.ctrlKey||t.metaKey||t.altKey||/^(INPUT|SELECT|TEXTAREA)$/.test(n.tagName)||t.key==="Enter"&&n.tagName==="BUTTON"||t.key.startsWith(
"Arrow")&&n.closest(".code, .side"))return;let r=this.actions(t)[t.key];r&&(t.preventDefault(),r())};actions(t){let{model:n,scene:r}=this,{selected:i}=this.state,
s=this.picture,o=l=>l!==null&&this.go(l),a=l=>this.state.found?this.nextMatch(l):this.nextChange(l);return{"/":()=>this.finder.focus(),"?":()=>this.setState({help:!this.
state.help}),Escape:()=>this.state.help?this.setState({help:!1}):this.select(null),Enter:()=>{if(i===null)return;let l=i<0?-i-1:r.byUnit.has(i)?n.above(i).find(
c=>r.byUnit.has(F(c))):-this.visible(i)-1;t.shiftKey?this.openAll(l):this.fold(l)},ArrowDown:()=>o(yr(n,r,i,1)),ArrowUp:()=>o(yr(n,r,i,-1)),ArrowLeft:()=>o(vr(n,
i,!1)),ArrowRight:()=>o(vr(n,i,!0)),"[":()=>this.turnAround(-1),"]":()=>this.turnAround(1),n:()=>a(1),p:()=>a(-1),"+":()=>s.scaleBy(1.3),"=":()=>s.scaleBy(1.3),
"-":()=>s.scaleBy(1/1.3),f:()=>s.fit(),a:()=>s.fitAll(),...Object.fromEntries(this.tabs().map(([l,,c])=>[c,()=>this.setState({tab:l})])),...Object.fromEntries(Array.
from({length:10},(l,c)=>[String(c),()=>this.depth(Math.max(1,c))]))}}tabs(){let{stats:t}=this.model.data,n=[!this.props.page.changes&&"changes",!t&&"values",!this.
model.timed&&"memory",!this.model.timed&&"lines"];return Lf.filter(([r])=>!n.includes(r))}lit(){let{model:t,scene:n}=this,{selected:r,hovered:i}=this.state,s=i??
r;if(s===null||s===F(0)||i!==null&&n.byUnit.get(i)?.kind==="open"&&r===null)return null;let o=i!==null&&n.byUnit.get(i)?.kind==="open"?r:s;return this.kept("lit",
[n,o],()=>Fi(t,n,o))}panel(){let{model:t,go:n,jump:r}=this,{pair:i,tab:s,opened:o,selected:a,moment:u}=this.state,{page:l,models:c}=this.props,h=s==="code"?this.
lit():null;return this.kept("panel",[t,s,o,a,u,h],()=>s==="changes"&&l.changes?f(Ye,{page:l,models:c,jump:r,marked:this.changes,at:Yn(this.changes,c,i,a)}):s===
"code"?f(je,{model:t,selected:a,go:n,lit:h?.steps??null}):s==="memory"&&t.timed?f(ls,{model:t,moment:u,go:n,onMoment:this.moment}):s==="lines"&&t.timed?f(Eo,{model:t,
go:n,search:this.ask}):s==="operators"?f(So,{model:t,search:this.ask}):s==="values"&&t.data.stats?f(Oo,{model:t,go:n}):s==="ports"?f(No,{model:t,go:n}):f(Ri,{page:l,
model:t,opened:o,selected:a,go:n,jump:r,onFold:this.fold,onOpenAll:this.openAll,onTurn:this.turn}))}bar(){let{page:t,models:n}=this.props,{pair:r,query:i,found:s,
at:o,told:a}=this.state,{model:u}=this,l=Ii(u,this.state.opened);return f("header",{children:[f("h1",{title:t.title,children:f("bdi",{children:t.title})}),n.length>
1&&f("select",{"aria-label":"pairs of graphs",value:r,onChange:c=>this.choose(Number(c.currentTarget.value)),children:n.map((c,h)=>f("option",{value:h,children:c.
data.name||`pair ${h+1}`},h))}),f(dn,{mounted:c=>this.finder=c,model:u,query:i,found:s,at:o,onQuery:this.search,onGo:this.goMatch,onLeave:()=>this.focusPicture()}),
f("span",{class:"group",role:"group","aria-label":"depth",children:[f("button",{title:"close one level",disabled:l<=1,onClick:()=>this.depth(Math.max(1,l-1)),children:"\
−"}),f("span",{class:"soft",title:"frames are open to this depth",children:["depth ",l]}),f("button",{title:"open one level",disabled:l>u.deepest,onClick:()=>this.
depth(l+1),children:"+"})]}),f("span",{class:"group",children:[f("button",{title:"the whole picture (a)",onClick:()=>this.picture.fitAll(),children:"fit"}),f("b\
utton",{title:"copy a link to the selection",onClick:this.link,children:"link"}),f("button",{title:"save the visible part as an SVG file",onClick:this.exported,
children:"SVG"}),f("button",{title:"keys (?)",onClick:()=>this.setState({help:!0}),children:"?"})]}),a&&(a.includes("#")?f("input",{class:"told",readOnly:!0,value:a,
"aria-label":"link",onFocus:c=>c.currentTarget.select()}):f("output",{class:"told",children:a}))]})}focusPicture(){document.querySelector("svg.picture").focus()}caption(){
let{model:t}=this,{hovered:n,selected:r}=this.state,i=n??r;if(i===null)return"";if(i<0)return[t.text(t.frame(-i-1).name),t.text(t.frame(-i-1).label)].filter(Boolean).
join("  ");let s=t.data.sources[t.data.nodes.source[i]]?.[3];return[`${t.nameOf(i)}: ${t.specOf(i)} = ${t.call(i)}`,t.lineOf(i),s===void 0?"":t.text(s)].filter(
Boolean).join("   ")}dragged=t=>{t.buttons===1&&this.setState({wide:Math.max(240,Math.min(innerWidth-200,innerWidth-t.clientX))})};render(){let{model:t,scene:n}=this,
{selected:r,marked:i,tab:s,help:o,moment:a,wide:u,opened:l}=this.state,c=this.kept("marks",[i],()=>({matches:i?.within??null,steps:i?.steps??null}));return f("d\
iv",{class:"app",style:{"--wide":`${u}px`},children:[this.bar(),f("main",{children:[f("div",{class:"stage",children:[f(Bn,{mounted:h=>this.picture=h,model:t,scene:n,
opened:l,marks:c,lit:this.lit(),pinned:r!==null&&r>=0,onClick:this.select,onFold:this.fold,onOpenAll:this.openAll,onTurn:this.turn,onHover:this.hover}),f("div",
{class:"legend","aria-hidden":"true",children:[f("span",{class:"forward",children:"forward ↓"}),f("span",{class:"saved",children:"saved"}),f("span",{class:"ba\
ckward",children:"backward ↑"})]}),f("div",{class:"caption",children:f("bdi",{children:this.caption()})})]}),f("div",{class:"grip",onPointerDown:h=>h.currentTarget.
setPointerCapture(h.pointerId),onPointerMove:this.dragged}),f("section",{class:"side",children:[f("nav",{role:"tablist",children:this.tabs().map(([h,p,d])=>f("b\
utton",{role:"tab","aria-selected":s===h,title:`key ${d}`,onClick:()=>this.setState({tab:h}),children:p},h))}),this.panel()]})]}),t.timed&&f(pn,{model:t,moment:a,
selected:r,onMoment:this.moment}),o&&f(If,{changes:this.props.page.changes!==void 0,onClose:()=>this.setState({help:!1})})]})}hover=t=>{t!==this.state.hovered&&
this.setState({hovered:t})}};function If({changes:e,onClose:t}){return f("div",{class:"cover",onClick:t,children:f("div",{class:"card",role:"dialog","aria-label":"\
keys",children:[f("h2",{children:"Keys"}),f("dl",{children:ss(e).map(([n,r])=>[f("dt",{children:f("kbd",{children:n})},n),f("dd",{children:r},`${n} `)])}),f("bu\
tton",{onClick:t,children:"close"})]})})}function Uf(e){let t=xi(document.getElementById("data")?.textContent??"");document.title=t.title||document.title,ie(f(zn,{page:t,models:t.pairs.map(n=>new Xe(n,
t.pairs.length>1?n.name:t.title))}),e)}var Ao=document.getElementById("app");try{Uf(Ao)}catch(e){let t=e instanceof Error?e.message:String(e);ie(f("div",{class:"\
wrong",role:"alert",children:[f("h1",{children:"This page cannot be drawn"}),f("p",{children:e instanceof oe?"Its data are not whole, or are not what this page \
reads. The first thing that is wrong:":"Something in the page itself failed:"}),f("pre",{children:t}),f("p",{children:["Write the page again: ",f("code",{children:"\
backprint view SAMPLE -o page.html"}),"."]})]}),Ao)}})();
