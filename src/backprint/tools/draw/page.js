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
"use strict";(()=>{var I,ri,To,Lt,Rn,Ge,ii,Fe,si,Gn,Vn,Lo,ye=Symbol.for("pv"),We={},He=[],Io=/^m(i|n|o|s|text|space)$/,Wn=Array.isArray,oi=He.slice,Vt=Object.assign;function Rt(e){
e&&e.parentNode&&e.remove()}function Re(e,t,n,r,i){var s={type:e,props:t,key:n,ref:r,__k:null,__:null,__b:0,__e:null,__c:null,constructor:ye,__v:i||++ri,__i:-1,__u:0};return!i&&I.vnode&&I.
vnode(s),s}function at(){return{current:null}}function ne(e){return e.children}function W(e,t){this.props=e,this.context=t,this.__g=0}function It(e,t){if(t==null)
return e.__&&It(e.__,e.__i+1);for(var n;t<e.__k.length;t++)if((n=e.__k[t])&&n.__e)return n.__e;return typeof e.type!="function"||e.props.__P?null:It(e)}function Uo(e){
var t,n=e.__v,r=n.__e,i=[],s=[],o=e.__P;o&&((t=Vt({constructor:ye},n)).__v=n.__v+1,I.vnode&&I.vnode(t),Hn(o,t,n,e.__n,o.namespaceURI,32&n.__u?[r]:null,i,r||It(n),
32&n.__u,s),t.__v=n.__v,t.__.__k[t.__i]=t,hi(i,t,s),n.__=n.__e=null,t.__e!=r&&ai(t))}function ai(e){if((e=e.__)&&e.__c&&!e.props.__P)return e.__e=null,e.__k.some(
function(t){return t&&(e.__e=t.__e)}),ai(e)}function ei(e){(8&e.__g||(e.__g|=8,Lt.push(e),Ge++))&&Rn==I.debounceRendering||((Rn=I.debounceRendering)||queueMicrotask)(
li)}function li(){try{for(var e,t=1;Lt.length;)Lt.length>t&&Lt.sort(ii),e=Lt.shift(),t=Lt.length,8&e.__g&&Uo(e)}finally{(Ge=Lt.length)&&(Rn||queueMicrotask)(li)}}
function ui(e,t,n,r,i,s,o,a,l,u,c){var h,p,d,m,y,v,g=r.__k||He,w=t.length;for(l=Do(n,t,g,l,w),h=0;h<w;h++)(d=n.__k[h])!=null&&(p=~d.__i&&g[d.__i]||We,d.__i=h,v=
Hn(e,d,p,i,s,o,a,l,u,c),m=d.__e,(p.ref!=d.ref||8&p.__u)&&(p.ref&&qn(p.ref,null,d,p),d.ref&&c.push(d.ref,d.__c||m,d)),y=y||m,4&d.__u?(l=ci(d,l,e,!p.__v),p.__e&&(p.
__e=null)):typeof d.type=="function"&&v!==void 0?l=v:m&&(l=m.nextSibling),d.__u&=-21);return n.__e=y,l}function Do(e,t,n,r,i){var s,o,a,l,u,c,h,p,d,m=n.length,y=m,
v=0,g=0,w=e.__k=Array(i);for(s=0;s<i;s++)(o=t[s])!=null&&typeof o!="boolean"&&typeof o!="function"?(typeof o!="object"||o.constructor===String?o=w[s]=Re(null,o):
Wn(o)?o=w[s]=Re(ne,{children:o}):o.constructor===ye&&o.__b?o=w[s]=Re(o.type,o.props,o.key,o.ref,o.__v):w[s]=o,l=s+v,o.__=e,o.__b=e.__b+1,a=null,~(u=o.__i=Bo(o,n,
l,y))&&(y--,(a=n[u])&&(a.__u|=2)),a&&a.__v?(o.__u|=16,u==l-1?v--:u==l+1?v++:u!=l&&(u>l?v--:v++,g=1)):(~u||(i>m?v--:i<m&&v++),typeof o.type!="function"&&(o.__u|=
4))):w[s]=null;if(g){for(c=[],h=[],s=0;s<i;s++)if((o=w[s])&&16&o.__u){for(v=0,p=c.length;v<p;)c[d=v+p>>1]<o.__i?v=d+1:p=d;c[v]=o.__i,h[s]=v+1}for(v=c.length;s--;)
h[s]&&(h[s]==v?v--:w[s].__u|=4)}if(y)for(s=0;s<m;s++)!(a=n[s])||2&a.__u||(a.__e==r&&(r=It(a)),Kn(a,a));return r}function ci(e,t,n,r){var i,s,o,a;if(typeof e.type==
"function"){if(e.props.__P)return t;if(i=e.__k)for(s=0;s<i.length;s++)i[s]&&(i[s].__=e,t=ci(i[s],t,n,!1));return t}for(t&&!t.parentNode&&(t=It(e))&&!t.parentNode&&
(t=null),o=e.__e,a=t;a&&a.nodeType==8;)a=a.nextSibling;for(o!=a&&(!r&&n.moveBefore&&o.parentNode?n.moveBefore(o,t):n.insertBefore(o,t||null)),t=o;(t=t&&t.nextSibling)&&
t.nodeType==8&&!t.data.startsWith("$s"););return t}function Bo(e,t,n,r){var i,s=e.key,o=e.type,a=t[n],l=a&&!(2&a.__u);if(a===null&&s==null||l&&s==a.key&&o==a.type)return n;if(r>(l?1:0)){for(i=n-1;i>=0;i--)if((a=
t[i])&&!(2&a.__u)&&s==a.key&&o==a.type)return i;for(i=n+1;i<t.length;i++)if((a=t[i])&&!(2&a.__u)&&s==a.key&&o==a.type)return i}return-1}function ni(e,t,n){n==null&&
(n=""),t[0]=="-"?e.setProperty(t,n):e[t]=n}function ze(e,t,n,r,i){var s,o;if(t=="style")if(typeof n=="string")e.style.cssText=n;else{if(typeof r=="string"&&(e.style.
cssText=r=""),r)for(t in r)n&&t in n||ni(e.style,t);if(n)for(t in n)r&&n[t]==r[t]||ni(e.style,t,n[t])}else if(t[0]=="o"&&t[1]=="n")typeof n!="function"&&(n=null),
typeof r!="function"&&(r=null),(e.__e||(e.__e={}))[t]=n,n&&r||(o=Vn[t]||(Vn[t]=zo(t)),(e.__a||(e.__a={}))[t]=Gn,s=t!=(t=t.replace(si,"$1")),(t=t.slice(2))[0]<"a"&&
(t=t.toLowerCase()),n?e.addEventListener(t,o,s):e.removeEventListener(t,o,s));else{if(i=="http://www.w3.org/2000/svg")t=t.replace(/xlink(H|:h)/,"h").replace(/sName$/,
"s");else if(t!="width"&&t!="height"&&t!="href"&&t!="list"&&t!="form"&&t!="tabIndex"&&t!="download"&&t!="rowSpan"&&t!="colSpan"&&t!="role"&&t!="popover"&&t in e)
try{return void(e[t]=n??"")}catch{}if(typeof n=="function")return;n==null||n===!1&&t[4]!="-"?e.removeAttribute(t):e.setAttribute(t,t=="popover"&&n==1?"":n)}}function zo(e){
return function(t){var n=this.__e;if(n){if(n=n[e],t[Fe]==null)t[Fe]=Gn++;else if(t[Fe]<this.__a[e])return;return n(I.event?I.event(t):t)}}}function Hn(e,t,n,r,i,s,o,a,l,u){
var c,h,p,d,m,y,v,g,w,x,$,P,O,B,Z,rt,V,j,G=t.type;if(t.constructor!==ye)return null;128&n.__u&&(l=32&n.__u,c=n.__c.__z)&&(t.__u|=l,h=s=[],c.nodeType==8?a=Ve(c,s):
s.push(c),a=s[0]||a),(c=I.__b)&&c(t);t:if(typeof G=="function"){p=o.length;try{if(g=t.props,w=(c=G.prototype)&&c.render,x=(c=G.contextType)&&r[c.__c],$=c?x?x.props.
value:c.__:r,(d=n.__c)?(t.__c=d,2&d.__g&&(d.__g|=1)):(w?t.__c=d=new G(g,$):(t.__c=d=new W(g,$),d.constructor=G,d.render=Ro),x&&x.sub(d),d.state||(d.state={}),d.
__n=r,d.__g|=8,d.__h=[],d.__k=[]),w&&(d.__s||(d.__s=d.state),G.getDerivedStateFromProps&&(d.__s==d.state&&(d.__s=Vt({},d.__s)),Vt(d.__s,G.getDerivedStateFromProps(
g,d.__s)))),m=d.props,y=d.state,d.__v=t,n.__c){if(g!==m&&w&&!G.getDerivedStateFromProps&&d.componentWillReceiveProps&&d.componentWillReceiveProps(g,$),t.__v==n.
__v&&!(8&d.__g)||!(4&d.__g)&&d.shouldComponentUpdate&&d.shouldComponentUpdate(g,d.__s,$)===!1){t.__v!=n.__v&&(d.props=g,d.state=d.__s,d.__g&=-9),t.__e=n.__e,t.__k=
n.__k,t.__k.some(function(q){q&&(q.__=t)}),He.push.apply(d.__h,d.__k),d.__k=[],d.__h.length&&o.push(d),a=It(n);break t}d.componentWillUpdate&&d.componentWillUpdate(
g,d.__s,$),w&&d.componentDidUpdate&&d.__h.push(function(){d.componentDidUpdate(m,y,v)})}else w&&!G.getDerivedStateFromProps&&d.componentWillMount&&d.componentWillMount(),
w&&d.componentDidMount&&d.__h.push(d.componentDidMount);d.context=$,d.props=g,d.__P=e,d.__g&=-5,P=I.__r,O=w?25:0;do d.__g&=-9,P&&P(t),c=d.render(d.props,d.state=
d.__s,d.context);while(8&d.__g&&++O<25);w&&(He.push.apply(d.__h,d.__k),d.__k=[]),d.state=d.__s,d.getChildContext&&(r=Vt({},r,d.getChildContext())),w&&n.__c&&d.getSnapshotBeforeUpdate&&
(v=d.getSnapshotBeforeUpdate(m,y)),B=c&&c.type===ne&&c.key==null?c.props.children:c,g.__P&&(c=a,i=(e=g.__P).namespaceURI,l=s=null,n.props&&n.props.__P!=e&&(n.__k.
some(function(q){q&&Kn(q,q)}),n.__k=null),a=n.__k?It(n,0):null),a=ui(e,Wn(B)?B:[B],t,n,r,i,s,o,a,l,u),g.__P&&(t.__e=null,a=c),t.__u&=-161,h&&h.some(Rt),d.__h.length&&
o.push(d),1&d.__g&&(d.__g&=-4)}catch(q){if(o.length=p,t.__v=null,l||s)if(q&&q.then){if(t.__u|=128|l,s){for(~(V=s.indexOf(a||void 0))||(V=s.length);(j=s[V-1])&&j.
nodeType==8;)V--;for(;V<s.length;V++)if(j=s[V])if(s[V]=null,Z){if(j==rt)break}else{if(j.nodeType!=8)break;j.data.startsWith("$s")&&(rt=Ve(Z=j))}}if(!Z){for(;a&&
a.nodeType==8&&a.nextSibling;)a=a.nextSibling;Z=a}(c=Ve(Z=t.__c.__z||(t.__c.__z=Z)))?(t.__e=Z,a=c):t.__e=a,a=a&&a.nextSibling}else s&&s.some(Rt);else t.__e=n.__e;
t.__k||(t.__k=n.__k||[]),q&&q.then||fi(t),I.__e(q,t,n)}}else a=t.__e=Fo(n.__e,t,n,r,i,s,o,l,u,e);return(c=I.diffed)&&c(t),a}function Ve(e,t){if(e&&e.nodeType==8&&
e.data.startsWith("$s"))for(var n=1;e=e.nextSibling;){if(e.nodeType==8){if(e.data.startsWith("$s"))n++;else if(e.data.startsWith("/$s")&&!--n)return e}t&&t.push(
e)}}function fi(e){e&&(e.__c&&(e.__c.__g|=4),e.__k&&e.__k.some(fi))}function hi(e,t,n){for(var r=0;r<n.length;)qn(n[r++],n[r++],n[r++]);I.__c&&I.__c(t,e),e.some(
function(i){try{e=i.__h,i.__h=[],e.some(function(s){s.call(i)})}catch(s){I.__e(s,i.__v)}})}function Fo(e,t,n,r,i,s,o,a,l,u){var c,h,p,d,m,y,v,g,w=n.props||We,x=t.
props,$=t.type;if($=="svg"?i="http://www.w3.org/2000/svg":$=="math"?i="http://www.w3.org/1998/Math/MathML":i||(i="http://www.w3.org/1999/xhtml"),s){for(c=0;c<s.
length;c++)if((m=s[c])&&($?m.localName==$:m.nodeType==3)){e=m,s[c]=null;break}}if(!e){if(g=u.ownerDocument||document,!$)return g.createTextNode(x);e=g.createElementNS(
i,$,x.is?x:u),a&&(I.__m&&I.__m(t,s),a=!1),s=null}if($){if(u=$=="template"&&e.content||e,s=$=="textarea"&&x.defaultValue!=null?null:s&&oi.call(u.childNodes),!a&&
s)for(w={},c=0;c<e.attributes.length;c++)w[(m=e.attributes[c]).name]=m.value;for(c in w)m=w[c],c=="dangerouslySetInnerHTML"?p=m:c=="children"||c in x||c=="value"&&
"defaultValue"in x||c=="checked"&&"defaultChecked"in x||ze(e,c,null,m,i);for(c in x)m=x[c],c=="children"?d=m:c=="dangerouslySetInnerHTML"?h=m:c=="value"?y=m:c==
"checked"?v=m:a&&typeof m!="function"||w[c]===m||ze(e,c,m,w[c],i);h?(a||p&&(h.__html==p.__html||h.__html==e.innerHTML)||(e.innerHTML=h.__html),t.__k=[]):(p&&(e.
textContent=""),($=="foreignObject"||i=="http://www.w3.org/1998/Math/MathML"&&Io.test($))&&(i="http://www.w3.org/1999/xhtml"),ui(u,Wn(d)?d:[d],t,n,r,i,s,o,s?s[0]:
n.__k&&It(n,0),a,l),s&&s.some(Rt)),a&&$!="textarea"||(c="value",$=="progress"&&y==null?e.removeAttribute(c):y==null||y===e[c]&&($!="progress"||y)||ze(e,c,y,w[c],
i),c="checked",v!=null&&v!=e[c]&&ze(e,c,v,w[c],i))}else w===x||a&&e.data==x||(e.data=x);return e}function qn(e,t,n,r){try{typeof e=="function"?t?t.__x=e(t)||1:r&&
(r=r.__c||r.__e)&&(t=r.__x)&&(r.__x=null,typeof t=="function"?t():e(null)):e.current=t}catch(i){I.__e(i,n)}}function Kn(e,t,n){var r,i,s,o;if(I.unmount&&I.unmount(
e),!(r=e.ref)||r.current&&r.current!=e.__e||qn(r,null,t,e),r=e.__c){if(r.componentWillUnmount)try{r.componentWillUnmount()}catch(a){I.__e(a,t)}r.__P=r.__n=null}
if(r=e.__k)for(o=0;o<r.length;o++)r[o]&&Kn(r[o],t,typeof e.type!="function"||n&&!e.props.__P);!n&&(r=e.__c)&&(r=r.__z)&&(i=Ve(r,s=[]))&&(r==e.__e&&s.some(Rt),Rt(
i),Rt(r)),n||Rt(e.__e),e.__e=e.__c=e.__=null}function Ro(e,t,n){return this.constructor(e,n)}function re(e,t){var n,r,i,s;I.__&&I.__(e,t),t.nodeType==9&&(t=t.documentElement),
r=(n=e&&32&e.__u)?null:t.__k,t.__k=Re(ne,{children:[e]}),i=[],s=[],Hn(t,t.__k,r||We,We,t.namespaceURI,r?null:t.firstChild?oi.call(t.childNodes):null,i,r?r.__e:t.
firstChild,n,s),hi(i,t.__k,s),t.__k.props.children=null}I={__e:function(e,t,n,r){for(var i,s,o;t=t.__;)if((i=t.__c)&&!(1&i.__g)){i.__g|=4;try{if((o=(s=i.constructor)&&s.getDerivedStateFromError)&&i.setState(s.getDerivedStateFromError(
e)),i.componentDidCatch&&(i.componentDidCatch(e,r||{}),o=1),o&&8&i.__g)return void(i.__g|=2)}catch(a){e=a}}throw Ge=0,e}},ri=0,To=function(e){return e!=null&&e.
constructor===ye},W.prototype.setState=function(e,t){var n=this.__s;n&&n!=this.state||(n=this.__s=Vt({},this.state)),typeof e=="function"&&(e=e(Vt({},n),this.props)),
e&&(Vt(n,e),this.__v&&(t&&this.__k.push(t),ei(this)))},W.prototype.forceUpdate=function(e){this.__v&&(this.__g|=4,e&&this.__h.push(e),ei(this))},W.prototype.render=
ne,Lt=[],Ge=0,ii=function(e,t){return e.__v.__b-t.__v.__b},Fe=Symbol(),si=/(PointerCapture)$|Capture$/i,Gn=0,Vn={},Lo=0;var di=["B","KiB","MiB","GiB","TiB","PiB"];function A(e){let t=0;for(;e>=999.5&&t<di.length-1;)[e,t]=[e/1024,t+1];return`${gi(e,t===0)} ${di[t]}`}var pi=["","k",
"M","G","T","P","E"];function ve(e){let t=0;for(;e>=999.5&&t<pi.length-1;)[e,t]=[e/1e3,t+1];return`${gi(e,t===0)} ${pi[t]}`.trim()}function ie(e){let t=ve(e);return/\d$/.
test(t)?`${t} FLOP`:`${t}FLOP`}function gi(e,t){return t?String(Math.round(e)):e>=99.95?e.toFixed(0):e>=9.995?e.toFixed(1):e.toFixed(2)}function we(e){return e?
`, ${ie(e)} in products`:""}function E(e){return e.toLocaleString("en-US")}function Ut(e){if(e===null)return"–";if(e===0||Number.isInteger(e)&&Math.abs(e)<1e6)
return E(e);let t=Math.abs(e);return t>=.001&&t<1e5?String(Number(e.toPrecision(4))):e.toExponential(2)}var Dt={added:"+",removed:"−",changed:"~"};function Q(e,t){
return`${E(e)} ${t}${e===1?"":"s"}`}function bi(e){let t=e.split(".");return t.length>=3?t[t.length-2]:t[t.length-1]}var Vo='system-ui, "Segoe UI", Helvetica, A\
rial, sans-serif',mi=100,Go={normal:new Map,bold:new Map},qe=null;function yi(e,t){let n=Go[t?"bold":"normal"],r=n.get(e);if(r!==void 0)return r;if(typeof document>
"u")return .6;if(qe??=document.createElement("canvas").getContext("2d"),!qe)return .65;qe.font=`${t?600:400} ${mi}px ${Vo}`;let i=qe.measureText(e).width/mi;return n.
set(e,i),i}function z(e,t,n=!1){let r=0;for(let i of e)r+=yi(i,n);return r*t}function Gt(e,t,n,r=!1){if(z(e,n,r)<=t)return e;let[i,s]=[t-z("…",n,r),0];for(let o of e){
if(i-=yi(o,r)*n,i<0)break;s+=o.length}return s?`${e.slice(0,s).trimEnd()}…`:""}var Wo=/[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\uffff\ud800-\udfff]/gu;
function lt(e){return e.replace(Wo,t=>`\\u${t.charCodeAt(0).toString(16).padStart(4,"0")}`)}var Ho=[["attention",/^_?(scaled_dot_product|flash_attention|efficient_attention|flex_attention)/],
["convolution",/^(_?conv|convolution|cudnn_conv|mkldnn_conv|slow_conv|thnn_conv)/],["matmul",/^_?(mm|addmm|bmm|baddbmm|addbmm|mv|addmv|dot|vdot|matmul|linear|scaled_mm|int_mm|grouped_mm|weight_int\w*)(_\w+)?$/],
["norm",/(layer|batch|group|rms|instance)_norm|^_?(weight_norm|native_\w*norm)|cudnn_batch_norm/],["softmax",/softmax/],["embedding",/embedding|^gather|^scatter|index|^take/],
["pool",/pool|upsample|interpolate|grid_sample/],["random",/dropout|^(rand|bernoulli|normal|uniform|multinomial|philox)/],["reduction",/^(sum|mean|var|std|amax|amin|max|min|argmax|argmin|any|all|prod|logsumexp|norm|linalg_vector_norm|cum\w+|nll_loss\w*|mse_loss\w*)(_|$)/],
["creation",/^(full|zeros|ones|empty|arange|new_|scalar_tensor|eye|tril|triu|linspace)/],["copy",/^(clone|_to_copy|copy|contiguous|cat|stack|constant_pad|roll|flip|sort|topk)/]];
function vi(e,t,n){return n?"guard":t?"view":Ho.find(([,r])=>r.test(e))?.[0]??"pointwise"}var bt=["added","removed","changed"],Xn=1,_i=2,xi=4,Yn=8,se=class extends Error{constructor(n,r){super();this.where=n;this.what=r}where;what;get message(){return`${this.
where}: ${this.what}`}},wi=["program","module","loop","turn","line","steps","region"];function Ke(e,t){throw new se(e,t)}function N(e,t,n){e||Ke(t,n)}function et(e){
let t=JSON.stringify(e)??"nothing";return t.length>60?`${t.slice(0,60)}…`:t}function gt(e,t){return N(typeof e=="object"&&e!==null&&!Array.isArray(e),t,`an ob\
ject was expected, found ${et(e)}`),e}function Wt(e,t){return N(Array.isArray(e),t,`a list was expected, found ${et(e)}`),e}function ut(e,t){N(typeof e=="string",
t,`a text was expected, found ${et(e)}`)}function $t(e,t,n,r){Number.isSafeInteger(e)&&e>=t&&e<n||Ke(r,`${et(e)} is not a whole number from ${t} to ${n===1/0?"2\
**53 - 1":n-1}`)}function X(e,t){typeof e=="number"&&Number.isFinite(e)&&e>=0||Ke(t,`${et(e)} is not a number of 0 or more`)}function L(e,t,n){let r=Wt(e,t),i=0;
try{for(;i<r.length;i++)n(r[i],"",i)}catch(s){throw s instanceof se&&(s.where=`${t}[${i}]${s.where}`),s}}function ct(e,t,n){let r=Wt(e,t);N(r.length===n.length,
t,`${n.length} entries were expected, found ${r.length}`),L(r,t,(i,s,o)=>n[o](i,s))}var D=(e,t)=>(n,r)=>$t(n,e,t,r);function qo(e,t){let n=gt(e.nodes,`${t}.node\
s`),r=Wt(n.name,`${t}.nodes.name`).length,[i,s]=[D(0,e.strings.length),D(0,1/0)],o={name:i,op:i,args:i,spec:i,echo:i,source:D(-1,e.sources.length),frame:D(0,e.frames.
length),flops:X,read:s,written:s,memory:s,flags:D(0,16),inputs:(a,l)=>L(a,l,D(0,r+e.ports.length)),partners:(a,l)=>L(a,l,D(0,e.forward))};for(let[a,l]of Object.
entries(o)){let u=Wt(n[a],`${t}.nodes.${a}`);N(u.length===r,`${t}.nodes.${a}`,`${r} entries were expected, one a step, found ${u.length}`),L(u,`${t}.nodes.${a}`,
l)}$t(e.forward,0,r+1,`${t}.forward`)}function Ko(e,t){let n=e.nodes.name.length,r=D(0,e.strings.length),i=e.ports.filter(a=>a.into).length;L(e.ports,`${t}.port\
s`,(a,l)=>{let u=gt(a,l);$t(u.side,0,2,`${l}.side`),N(typeof u.into=="boolean",`${l}.into`,`true or false was expected, found ${et(u.into)}`),ut(u.role,`${l}.ro\
le`),r(u.name,`${l}.name`),r(u.spec,`${l}.spec`),X(u.bytes,`${l}.bytes`),$t(u.value,u.into?n:-1,n+i,`${l}.value`)});let s=n;e.ports.forEach((a,l)=>{a.into&&N(a.
value===s++,`${t}.ports[${l}].value`,`${s-1} was expected, found ${a.value}`)});let o=D(0,n+i);L(e.nodes.inputs,`${t}.nodes.inputs`,(a,l)=>L(a,l,o)),L(e.saved,`${t}\
.saved`,(a,l)=>ct(a,l,[o,D(n,n+i),X,X]))}function Xo(e,t){let{frames:n,layouts:r,nodes:i}=e,s=D(0,e.strings.length),o={steps:new Uint8Array(i.name.length),frames:new Uint8Array(
n.length)};N(n.length>0,`${t}.frames`,"there is no frame"),n.forEach((l,u)=>{let c=`${t}.frames[${u}]`;s(l.name,`${c}.name`),s(l.label,`${c}.label`),N(wi.includes(
l.kind),`${c}.kind`,`${et(l.kind)} is none of ${wi.join(", ")}`),$t(l.parent,u?0:-1,u?n.length:0,`${c}.parent`),$t(l.layout,l.kind==="loop"?-1:0,l.kind==="loop"?
0:r.length,`${c}.layout`),ct(l.counts,`${c}.counts`,[X,X,X,X,X]),L(l.units,`${c}.units`,D(-n.length,i.name.length)),N(l.kind!=="loop"||l.units.length,c,"a loop \
without a turn");for(let h of l.units){let[p,d]=h<0?[o.frames,-h-1]:[o.steps,h];N(!p[d]++,c,`${h<0?"frame":"step"} ${d} is in two frames`);let m=h<0?n[d].parent:
i.frame[d];N(m===u,c,`${h<0?"frame":"step"} ${d} says that it is in frame ${m}`),N(l.kind!=="loop"||h<0,c,`step ${d} is a turn of a loop`)}});let a=o.steps.indexOf(
0);N(a<0,`${t}.frames`,`step ${a} is in no frame`),n.forEach((l,u)=>{let[c,h]=[u,n.length];for(;c>0&&h--;)N(o.frames[c],`${t}.frames[${c}]`,"it is in no frame"),
c=n[c].parent;N(c<=0,`${t}.frames[${u}]`,"it is inside itself")}),n.forEach((l,u)=>{l.layout>=0&&Qo(r[l.layout],l,e.forward,`${t}.frames[${u}]`)}),Zo(e,t)}var Yo=[
"steps forward","steps backward","saved bytes","FLOPs forward","FLOPs backward"];function Zo(e,t){let{frames:n,nodes:r,forward:i}=e,s=new Map;for(let[a,,,l]of e.
saved)s.set(a,(s.get(a)??0)+l);let o=n.map(()=>[0,0,0,0,0]);r.name.forEach((a,l)=>{let u=o[r.frame[l]],c=l<i?0:1;u[c]+=1,u[2]+=s.get(l)??0,u[3+c]+=r.flops[l]});
for(let a of jo(n).reverse())a&&o[a].forEach((l,u)=>{o[n[a].parent][u]+=l});n.forEach((a,l)=>a.counts.forEach((u,c)=>N(u===o[l][c]||u>Number.MAX_SAFE_INTEGER,`${t}\
.frames[${l}].counts`,`it says ${u} ${Yo[c]}, and its steps add up to ${o[l][c]}`)))}function jo(e){let t=[0];for(let n of t)for(let r of e[n].units)r<0&&t.push(
-r-1);return t}function Qo(e,t,n,r){let i=new Uint8Array(t.units.length);for(let s of e.rows)s.forEach((o,a)=>{for(let l of o)N(l<t.units.length&&!i[l]++,r,`its\
 layout gives ${l} no place, or two`),N(t.units[l]<0==(a===1),r,`its layout takes unit ${l} for a ${a===1?"frame":"step"}`),N(a===1||t.units[l]<n==(a===0),r,`it\
s layout has step ${t.units[l]} on the side of the ${a?"backward":"forward"}`)});N(i.every(Boolean),r,`its layout has no place for unit ${i.indexOf(0)}`)}function Jo(e,t){
L(e.layouts,`${t}.layouts`,(n,r)=>{let i=gt(n,r),s=0;L(i.rows,`${r}.rows`,(a,l)=>{ct(a,l,[0,1,2].map(()=>(u,c)=>L(u,c,D(0,1/0)))),s+=a.flat().length}),ct(i.slots,
`${r}.slots`,[D(0,1e5),D(0,1e5)]);let o=D(-1,s);["left","right"].forEach((a,l)=>L(i[a],`${r}.${a}`,(u,c)=>ct(u,c,[o,o,D(-1,i.slots[l]),D(0,e.strings.length),X]))),
L(i.bridges,`${r}.bridges`,(a,l)=>ct(a,l,[o,o,X,X]))})}function ta(e,t){let n=e.nodes.name.length,r=gt(e.memory,`${t}.memory`);X(r.before,`${t}.memory.before`),
L(r.live,`${t}.memory.live`,X),N(e.memory.live.length===n,`${t}.memory.live`,`${n} entries were expected, one a step, found ${e.memory.live.length}`);let i=D(-1,
n+e.ports.length),s=(o,a)=>ct(o,a,[i,D(0,n+1),D(0,n+1),X,D(0,e.strings.length)]);for(let o of["spans","held"])L(r[o],`${t}.memory.${o}`,s);ct(r.peak,`${t}.memor\
y.peak`,[D(-1,Math.max(n,1)),X]),ea(e.memory,n,`${t}.memory`)}function ea({live:e,spans:t,peak:n},r,i){let s=new Float64Array(r+2);for(let[,l,u,c]of t)s[l]+=c,s[u+
1]-=c;let o=0;for(let l=0;l<r;l++)o+=s[l],N(e[l]===o||o>Number.MAX_SAFE_INTEGER,`${i}.live[${l}]`,`it says ${e[l]} bytes, and its spans add up to ${o}`);let a=e.
reduce((l,u)=>Math.max(l,u),0);N(n[1]===a&&(!r||e[n[0]]===a),`${i}.peak`,`it says ${n[1]} bytes at step ${n[0]}, and the most that live are ${a}`)}function na(e,t){
if(e.stats===void 0)return;let{value:n,rows:r}=gt(e.stats,t);L(n,`${t}.value`,D(0,e.nodes.name.length+e.ports.length)),L(r,`${t}.rows`,(i,s)=>{N(Wt(i,s).length===
9,s,`9 numbers were expected, found ${i.length}`),L(i,s,(o,a)=>N(o===null||Number.isFinite(o),a,`${et(o)} is not a number`))}),N(n.length===r.length,t,`${n.length}\
 values and ${r.length} rows`)}var ra={added:["+ "],removed:["- "],changed:["- ","+ "]};function ia(e,t){let n=gt(e.marks,t),r=e.nodes.name.length;$t(n.pair,-1,
1/0,`${t}.pair`),L(n.node,`${t}.node`,(i,s,o)=>$t(i,o?n.node[o-1]+1:0,r,s));for(let i of["kind","text","other"]){let s=Wt(n[i],`${t}.${i}`).length;N(s===n.node.
length,`${t}.${i}`,`${n.node.length} entries were expected, one a marked step, found ${s}`)}L(n.kind,`${t}.kind`,(i,s)=>N(bt.includes(i),s,`${et(i)} is none of ${bt.
join(", ")}`)),L(n.text,`${t}.text`,(i,s,o)=>{ut(i,s);let a=i.split(`
`),l=ra[n.kind[o]];N(a.length===l.length&&l.every((u,c)=>a[c].startsWith(u)),s,`${l.length===1?"a line":"two lines"} with ${l.join("and ").trim()} in front was \
expected of a step that was ${n.kind[o]}, found ${et(i)}`)})}function sa(e){e.forEach(({marks:t},n)=>{let r=`pairs[${n}].marks`,{pair:i,node:s,kind:o,text:a,other:l}=t,
u=e[i]?.marks;$t(i,-1,e.length,`${r}.pair`),N(u?u.pair===n&&i!==n:i<0,`${r}.pair`,`pair ${i} says that its other pair is ${u?.pair}`);let c=new Map(u?.node.map(
(h,p)=>[h,p]));L(l,`${r}.other`,(h,p,d)=>{if(o[d]!=="changed")return N(h===-1,p,`-1 was expected of a step that was ${o[d]}, found ${et(h)}`);let m=c.get(h)??-1;
N(m>=0&&u.other[m]===s[d]&&u.text[m]===a[d],p,`step ${et(h)} of pair ${i} is not marked as what this step was or became`)})})}function oa(e,t){let n=gt(e,t);ut(
n.name,`${t}.name`),L(n.strings,`${t}.strings`,ut),N(n.strings[0]==="",`${t}.strings`,"the first is not the empty text");for(let s of["ports","sources","saved",
"frames","layouts"])Wt(n[s],`${t}.${s}`);L(n.frames,`${t}.frames`,gt);let r=D(0,n.strings.length);L(n.sources,`${t}.sources`,(s,o)=>ct(s,o,[r,D(0,1/0),r,r,r])),
qo(n,t),Ko(n,t),Jo(n,t),Xo(n,t),ta(n,t);let i=gt(n.code,`${t}.code`);for(let s of[i.forward,i.backward])L(s,`${t}.code`,ut);ct(i.ends,`${t}.code.ends`,[0,1].map(
()=>(s,o)=>L(s,o,ut))),na(n,`${t}.stats`),n.marks!==void 0&&ia(n,`${t}.marks`)}function ki(e){let t;try{t=JSON.parse(e)}catch(s){Ke("data",`they are not JSON (${s.
message})`)}let n=gt(t,"data");N(n.format===1,"format",`this page reads format 1, found ${et(n.format)}; write the page again with this version of Backprint`),ut(
n.title,"title"),L(n.facts,"facts",(s,o)=>ct(s,o,[ut,ut])),L(n.notes,"notes",ut),L(n.pairs,"pairs",oa),N(n.pairs.length,"pairs","there is none");let r=n.changes!==
void 0;r&&L(n.changes,"changes",ut),n.pairs.forEach((s,o)=>N(s.marks!==void 0===r,`pairs[${o}].marks`,r?"the page has changes, and this pair has no marks":"this\
 pair has marks, and the page has no changes")),r&&sa(n.pairs);let i=n.pairs.map(s=>({...s,name:lt(s.name)}));return{...n,title:lt(n.title),facts:n.facts.map(([
s,o])=>[lt(s),lt(o)]),notes:n.notes.map(lt),...n.changes&&{changes:n.changes.map(lt)},pairs:i}}var F=e=>-e-1,Xe=class{constructor(t,n=""){this.data=t;this.called=n;let{nodes:r,frames:i}=t;this.count=r.name.length,this.strings=t.strings.map(lt),this.entering=
t.ports.filter(s=>s.into),this.shorts=r.op.map(s=>bi(this.strings[s])),this.kinds=this.shorts.map((s,o)=>vi(s,(r.flags[o]&Xn)!==0,(r.flags[o]&_i)!==0)),[this.starts,
this.users]=aa(r.inputs,this.count+this.entering.length),this.pulled=la(r.partners,this.count),this.place=new Int32Array(this.count),this.framePlace=new Int32Array(
i.length);for(let s of i)s.units.forEach((o,a)=>(o<0?this.framePlace:this.place)[o<0?-o-1:o]=a);[this.alike,this.depth]=this.structure(),this.deepest=this.depth.
reduce((s,o)=>Math.max(s,o),0),this.timed=t.memory.spans.length>0||t.memory.peak[1]>0||t.memory.before>0,this.savedFrom=new Map;for(let[s,o,a,l]of t.saved)_e(this.
savedFrom,s).push([o,a,l]);this.pills=this.portPills(),this.neighbors=r.flags.some(s=>s&Yn),this.bad=new Map,t.stats?.value.forEach((s,o)=>{let[a,l]=[t.stats.rows[o][6],
t.stats.rows[o][7]];(a||l)&&this.bad.set(s,{nan:a,inf:l})}),t.marks?.node.forEach((s,o)=>this.mark(s,o)),this.badFrames=new Set([...this.bad.keys()].filter(s=>s<
this.count).flatMap(s=>this.above(s)))}data;called;count;strings;entering;shorts;kinds;starts;users;pulled;place;framePlace;alike;depth;deepest;pills;timed;bad;badFrames;savedFrom;marks=new Map;marked=new Map;neighbors;lines;paths;lineAt;mark(t,n){
let{kind:r,text:i,other:s}=this.data.marks,a=i[n].split(`
`).map(l=>[l.startsWith("-")?"before":"after",lt(l.slice(2))]);this.marks.set(t,{kind:r[n],texts:a,other:s[n]});for(let l of this.above(t)){let u=this.marked.get(
l)??Object.fromEntries(bt.map(c=>[c,0]));this.marked.set(l,u),u[r[n]]++}}isNeighbor(t){return(this.data.nodes.flags[t]&Yn)!==0}text(t){return this.strings[t]}frame(t){
return this.data.frames[t]}isForward(t){return t<this.data.forward}nameOf(t){return t<0?"a constant":this.strings[t<this.count?this.data.nodes.name[t]:this.entering[t-
this.count].name]}specOf(t){return t<0?"":this.strings[t<this.count?this.data.nodes.spec[t]:this.entering[t-this.count].spec]}usersOf(t){return[...this.users.subarray(
this.starts[t],this.starts[t+1])]}lineOf(t){let n=this.data.sources[this.data.nodes.source[t]];return n?`${this.strings[n[0]]}:${n[1]}`:""}moduleOf(t){let n=this.
data.sources[this.data.nodes.source[t]];return n?this.strings[n[4]]:""}savedSum(){let t={own:[0,0],rest:[0,0]};for(let[,,n,r]of this.data.saved){let i=r?t.own:t.
rest;i[0]++,i[1]+=r||n}return t}isSaved(t){return(this.data.nodes.flags[t]&xi)!==0}isView(t){return(this.data.nodes.flags[t]&Xn)!==0}above(t){let n=[];for(let r=t<
0?this.frame(-t-1).parent:this.data.nodes.frame[t];r>=0;r=this.frame(r).parent)n.push(r);return n}title(t){let{name:n,parent:r,kind:i,label:s}=this.frame(t);if(r<
0&&this.called)return this.called;let[o,a]=[this.strings[n],r>=0?this.strings[this.frame(r).name]:""];return(a&&o.startsWith(`${a}.`)?o.slice(a.length+1):o)||this.
strings[s]||i}isTurn(t){let{parent:n}=this.frame(t);return n>=0&&this.frame(n).kind==="loop"}path(t){return(this.paths??=this.allPaths())[t]}allPaths(){let t=[],
n=r=>{if(t[r]!==void 0)return t[r];let{name:i,parent:s,kind:o}=this.frame(r),a=s>0?n(s):"",l=o==="loop"?this.strings[i].replace(/\.?\d+…\d+$/,""):this.strings[i];
return t[r]=s<0?"":[a,l].filter(Boolean).join(o==="line"?" ":".")};return this.data.frames.forEach((r,i)=>n(i)),t}*inside(t){for(let n of this.frame(t).units)n>=
0?yield n:yield*this.inside(-n-1)}call(t){let{op:n,args:r,inputs:i}=this.data.nodes,s=this.strings[r[t]].replace(/\{(\d+)\}/g,(o,a)=>a in i[t]?this.nameOf(i[t][a]):
o);return`${this.strings[n[t]]}(${s})`}echoOf(t){let{echo:n,partners:r}=this.data.nodes,i=this.strings[n[t]];return i&&`${i} ${r[t].map(s=>this.nameOf(s)).join(
", ")}`}code(){if(this.lines)return this.lines;let{forward:t,code:n}=this.data,r=[],i=a=>r.push({node:-1,text:lt(a)}),s="",o=(a,l)=>{for(let u=a;u<l;u++){let c=[
this.echoOf(u),this.moduleOf(u),this.lineOf(u)].filter(Boolean).join("; ");c&&c!==s&&r.push({node:u,text:`# ${s=c}`}),r.push({node:u,text:null})}};return n.forward.
forEach(i),o(0,t),n.ends[0].forEach(i),(this.count>t||n.backward.length)&&i(""),n.backward.forEach(i),o(t,this.count),n.ends[1].forEach(i),this.lineAt=new Int32Array(
this.count),r.forEach((a,l)=>{a.node>=0&&(this.lineAt[a.node]=l)}),this.lines=r}lineOfCode(t){return this.code(),this.lineAt[t]}structure(){let{frames:t}=this.data,
n=new Map,[r,i]=[new Int32Array(t.length),new Int32Array(t.length)],s=(o,a,l)=>{let u=a>=0&&t[t[o].parent].kind==="loop",c=`${a}:${u?"*":this.framePlace[o]}`;n.
has(c)||n.set(c,n.size),r[o]=n.get(c),i[o]=l;for(let h of t[o].units)h<0&&s(-h-1,r[o],u?l:l+1)};return s(0,-1,0),[r,i]}portPills(){let t=new Map,n=i=>t.get(i)??
(t.set(i,{outer:[],made:[]}),t.get(i)),r=i=>{let s=this.strings[i.name];return{text:s.split(".").at(-1),title:`${i.role} ${s} ${this.strings[i.spec]}`,role:i.role}};
for(let i of this.entering)if(i.role==="parameter"||i.role==="buffer")for(let s of this.usersOf(i.value))n(s).outer.push(r(i));for(let i of this.data.ports)!i.into&&
i.role!=="saved"&&i.value>=0&&i.value<this.count&&n(i.value).made.push(r(i));return t}};function _e(e,t){let n=e.get(t)??[];return e.set(t,n),n}function aa(e,t){
let n=new Int32Array(t+1),r=e.map(o=>[...new Set(o)]);for(let o of r)for(let a of o)n[a+1]++;for(let o=0;o<t;o++)n[o+1]+=n[o];let i=n.slice(),s=new Int32Array(n[t]);
return r.forEach((o,a)=>o.forEach(l=>s[i[l]++]=a)),[n,s]}function la(e,t){let n=Array.from({length:t},()=>[]);return e.forEach((r,i)=>r.forEach(s=>n[s].push(i))),
n}var ua=Symbol.for("pv"),ca=0;function f(e,t,n,r,i,s){t||(t={});var o,a,l=t;if("ref"in l&&typeof e!="function")for(a in l={},t)a=="ref"?o=t[a]:l[a]=t[a];var u={type:e,props:l,key:n,ref:o,__k:null,
__:null,__b:0,__e:null,__c:null,constructor:ua,__v:--ca,__i:-1,__u:0};return(i||s)&&(u.__source=i,u.__self=s),I.vnode&&I.vnode(u),u}function $i(e){return e.flatMap((t,n)=>{let r=new Map,i=(t.data.marks?.pair??-1)<n;for(let[s,o]of t.marks)(o.other<0||!i)&&_e(r,Mi(t,s)).push({pair:n,node:s});return[
...r.values()].flat()})}function Mi(e,t){let n=e.data.nodes.frame[t];return e.moduleOf(t)||e.path(n)||e.title(n)}function Zn(e,t,n,r){let{marks:i,data:s}=t[n],o=s.
marks?.pair,a=r===null?void 0:i.get(r)?.other;return e.findIndex(l=>l.pair===n&&l.node===r||l.pair===o&&l.node===a)}function jn(e,t){let n=e.marked.get(t);return n?
bt.filter(r=>n[r]).map(r=>`${E(n[r])} ${r}`).join(", "):""}function Qn({page:e,model:t,node:n,jump:r}){let{kind:i,texts:s,other:o}=t.marks.get(n),{pair:a}=t.data.
marks;return f("div",{class:"change",children:[f("p",{children:[f("b",{class:"sign",children:Dt[i]})," ",i,o>=0&&", ",o>=0&&f("button",{class:"link",onClick:()=>r(
a,o),children:["see ",f("bdi",{children:e.pairs[a].name})]})]}),f("dl",{children:s.map(([l,u])=>[f("dt",{children:l},l),f("dd",{children:f("code",{children:f("b\
di",{children:u})})},`${l} `)])})]})}var fa=200,ha=100,Ye=class extends W{state={lines:fa,rows:ha};chosen=at();componentDidUpdate(t){t.at!==this.props.at&&this.
chosen.current?.scrollIntoView({block:"nearest"})}row(t,n){let{page:r,models:i,jump:s,at:o}=this.props,a=i[t.pair],{kind:l}=a.marks.get(t.node);return f("li",{class:n===
o?"chosen":"",ref:n===o?this.chosen:null,"aria-current":n===o,children:[f("b",{class:"sign",title:l,children:Dt[l]}),f("button",{class:`link ${a.isForward(t.node)?
"forward":"backward"}`,title:a.call(t.node),onClick:()=>s(t.pair,t.node),children:f("bdi",{children:a.nameOf(t.node)})}),f("code",{class:"soft",children:a.specOf(
t.node)}),n===o&&f(Qn,{page:r,model:a,node:t.node,jump:s})]},`${t.pair} ${t.node}`)}rows(t){let{page:n,models:r,marked:i}=this.props,s=({pair:o,node:a})=>`${n.pairs[o].
name}, ${Mi(r[o],a)}`;return i.slice(0,t).flatMap((o,a)=>{let l=this.row(o,a),u=s(o);return a&&s(i[a-1])===u?[l]:[f("li",{class:"head",children:f("bdi",{children:u})},
`${a} head`),l]})}render({page:t,marked:n,at:r}){let i=t.changes,{lines:s,rows:o}=this.state,a=Math.max(o,r+20);return f("div",{class:"panel",children:[f("h2",{
children:"Changes"}),f("div",{class:"said",children:i.slice(0,s).map((l,u)=>f("div",{class:/^\s+[-+~!]/.test(l)?"one":"",children:f("bdi",{children:l})},u))}),i.
length>s&&f("button",{class:"more",onClick:()=>this.setState({lines:1/0}),children:["show more: ",E(s)," of ",Q(i.length,"line")]}),f("h3",{children:"Steps"}),n.
length?f("ul",{class:"marked",children:this.rows(a)}):f("p",{class:"soft",children:"No step is marked."}),n.length>a&&f("button",{class:"more",onClick:()=>this.
setState({rows:a*5}),children:["show more: ",E(a)," of ",E(n.length)]})]})}};var Ht=18,Ze=class extends W{state={from:0,count:60};box=at();watcher=new ResizeObserver(()=>this.scrolled());componentDidMount(){this.watcher.observe(this.box.
current),this.follow()}componentWillUnmount(){this.watcher.disconnect()}componentDidUpdate(t){(t.selected!==this.props.selected||t.model!==this.props.model)&&this.
follow()}target(){let{model:t,selected:n}=this.props;return n===null||n>=0?n:t.inside(-n-1).next().value??null}follow(){let t=this.target(),n=this.box.current;if(t!==
null){let r=this.props.model.lineOfCode(t)*Ht;(r<n.scrollTop+Ht||r>n.scrollTop+n.clientHeight-2*Ht)&&(n.scrollTop=r-n.clientHeight/2)}this.scrolled()}scrolled=()=>{
let t=this.box.current,n=Math.max(0,Math.floor(t.scrollTop/Ht)-10),r=Math.ceil(t.clientHeight/Ht)+20;(n!==this.state.from||r!==this.state.count)&&this.setState(
{from:n,count:r})};step(t){let{model:n}=this.props,{op:r,args:i,inputs:s,spec:o}=n.data.nodes,a=[];return n.text(i[t]).split(/\{(\d+)\}/).forEach((u,c)=>{c%2===
0?a.push(u):Number(u)<s[t].length?a.push(f("span",{class:"value",children:f("bdi",{children:n.nameOf(s[t][Number(u)])})})):a.push(`{${u}}`)}),[f("b",{class:n.isForward(
t)?"forward":"backward",children:f("bdi",{children:n.nameOf(t)})}),": ",f("i",{children:['"',n.text(o[t]),'"']})," = ",f("span",{class:"op",children:n.text(r[t])}),
"(",...a,")"]}render({model:t,selected:n,lit:r,go:i}){let s=t.code(),{from:o,count:a}=this.state,l="    ";return f("div",{class:"code",ref:this.box,tabIndex:0,onScroll:this.
scrolled,"data-lines":s.length,children:f("div",{class:"sheet",style:{height:`${s.length*Ht}px`},children:s.slice(o,o+a).map((u,c)=>{let h=u.node>=0&&u.node===n,
p=u.node>=0&&r?.has(u.node),d=t.marks.get(u.node);return f("div",{class:`row${h?" chosen":p?" lit":""}${u.text===null?"":u.node>=0?" note":""}`,style:{top:`${(o+
c)*Ht}px`},onClick:u.node>=0?()=>i(u.node):void 0,children:[f("span",{class:"no",children:[d&&u.text===null&&f("b",{class:"sign",children:[Dt[d.kind]," "]}),o+c+
1]}),u.text===null?[l,l,this.step(u.node)]:u.node>=0?l+l+u.text:u.text]},o+c)})})})}};var J=28,Mt=156,$e=10,oe=J+$e+Mt/2,ae=24,tn=17,nr=28,en=20,da=50,Ci=8,Jn=30,Si=14,Ai=10;function qt(e,t,n){return t.open.has(e.alike[n])}function le(e,t,n){let{
kind:r,units:i}=e.frame(n);return r!=="loop"?n:le(e,t,-i[Math.min(Bt(e,t,n),i.length-1)]-1)}function Bt(e,t,n){return Math.min(t.turn.get(e.alike[n])??0,e.frame(
n).units.length-1)}var nn=.45,Me=e=>e<500?8:24,ue=14;function ce(e){return Math.min(z(e,ue,!0)+10,116)}function rn(e,t){let n=e.pills.get(t),r=[];if(!n)return{left:r,
right:r};let i=[...n.outer,...n.made],s=i.length>4?[...i.slice(0,3),{text:`+${i.length-3}`,title:i.slice(3).map(o=>o.title).join(`
`),role:"more"}]:i;return e.isForward(t)?{left:s,right:r}:{left:r,right:s}}function pa(e,t){let{left:n,right:r}=rn(e,t),i=o=>o.length?Math.max(...o.map(a=>ce(a.
text)))+5:0,s=Math.max(e.isView(t)?en:nr,Math.max(n.length,r.length)*tn);return{left:Mt/2+i(n),right:Mt/2+i(r),height:s}}var tr={left:J+$e+Mt,right:J+$e+Mt,height:da};
function Pi(e,t,n){if(!qt(e,t,n))return tr;let r=e.frame(le(e,t,n)),i=e.data.layouts[r.layout],s=[],o=[],a=[],[l,u,c]=[ae+Jn,tr.left,tr.right];i.rows.forEach((d,m)=>{
let y=d.map(P=>P.map(O=>{let B=r.units[O];return{unit:B,block:B<0?Pi(e,t,-B-1):pa(e,B)}})),v=Math.max(en,...y.flat().map(P=>P.block.height)),g=(P,O,B)=>{s.push(
{unit:P,x:O,y:l+(v-B.height)/2,block:B,row:m}),[u,c]=[Math.max(u,B.left-O),Math.max(c,B.right+O)]},[w,x]=ma(y[1],g),$=-Math.max(w,J)-$e;for(let{unit:P,block:O}of y[0].
reverse())[$]=[$-O.right-O.left-12,g(P,$-O.right,O)];$=Math.max(x,J)+$e;for(let{unit:P,block:O}of y[2])[$]=[$+O.right+O.left+12,g(P,$+O.left,O)];o.push(l),a.push(
l+v),l+=v+Jn});let[h,p]=[i.slots.map(d=>d?d*Ai+6:0),Math.max(l,ae+Jn)+Ci];return{left:u+h[0]+Si,right:c+h[1]+Si,height:p,inside:s,tops:o,bottoms:a,walls:[-u-4,c+
4]}}function ma(e,t){if(!e.length)return[0,0];let n=e.reduce((s,{block:o})=>s+o.left+o.right,0)+(e.length-1)*18,r=e.length===1?-e[0].block.left:-n/2,i=-r;for(let{
unit:s,block:o}of e)t(s,r+o.left,o),r+=o.left+o.right+18;return[i,r-18]}function sn(e,t){let n=Pi(e,t,0),r=[],i=[],s=ir(e),o=(u,c,h,p,d,m)=>{let y=-u-1,v=u>=0,g={
unit:u,x:h-(v?Mt/2:c.left),y:p,w:v?Mt:c.left+c.right,h:c.height,mid:h,kind:v?"node":c.inside?"open":"folded",level:d,around:m};if(r.push(g),!c.inside)return;for(let x of c.
inside)o(x.unit,x.block,h+x.x,p+x.y,d+1,u);let w=le(e,t,y);i.push(...ga(e,w,y,c,h,p,s))};o(F(0),n,0,0,0,null);let a=new Map(r.map(u=>[u.unit,u])),l=new Map(i.map(
u=>[u.key,u]));return{boxes:r,lines:i,byUnit:a,lineOf:l,left:-n.left,right:n.right,height:n.height}}function rr(e,t,n,r){return`${e}/${t}/${n??"in"}/${r??"out"}`}
function ir(e){let t=Math.max(1,e.frame(0).counts[2],...e.data.saved.map(n=>n[2]));return n=>Math.min(20,Math.max(1.6,20*Math.cbrt(n/t)))}function ga(e,t,n,r,i,s,o){
let a=e.data.layouts[e.frame(t).layout],{units:l}=e.frame(t),u=new Map(r.inside.map(h=>[h.unit,h])),c=[];for(let h of["left","right"]){let p=ba(a,h,l,u),d=new Set;
a[h].forEach((m,y)=>{let v=ya(m,h,l,u,r,p[y]),g=e.text(m[3]).replace(/\] .*$/,"]"),w=`${m[0]} ${g}`,x=m[2]<0?va(v[0],v[1]):wa(v,m,h,r);c.push(Ei(x,i,s,{within:n,
side:h,from:m[0]<0?null:l[m[0]],to:m[1]<0?null:l[m[1]],width:1.3+Math.log2(Math.max(1,m[4]))*.35,label:d.has(w)?"":g})),d.add(w)})}return a.bridges.forEach((h,p)=>{
let d=xa(h,l,u,r,p);c.push(Ei(d,i,s,{within:n,side:"bridge",from:h[0]<0?null:l[h[0]],to:h[1]<0?null:l[h[1]],width:o(h[2]),label:`${h[2]}`}))}),c}function Ei(e,t,n,r){
let i=e.parts.flatMap(([,...h])=>h),[s,o]=[i.map(h=>h[0]+t),i.map(h=>h[1]+n)],[a,l]=[Math.min(...s),Math.min(...o)],u=e.parts.map(([h,...p])=>h+p.map(d=>`${Oi(d[0]+
t)},${Oi(d[1]+n)}`).join(" ")).join(""),c=([h,p])=>[h+t,p+n];return{...r,key:rr(r.within,r.side,r.from,r.to),d:u,at:e.at.map(c),ends:[c(i[0]),c(i[i.length-1])],
box:[a,l,Math.max(...s)-a,Math.max(...o)-l]}}var Oi=e=>Math.round(e*10)/10;function ba(e,t,n,r){let i=new Map,s=e[t].map(()=>0);e[t].forEach((a,l)=>i.set(a[1],[
...i.get(a[1])??[],l]));let o=a=>{let[l,,u]=e[t][a],c=t==="left"?-1:1;return u>=0?c*(1e4+u):l<0?c*oe:r.get(n[l]).x};for(let[a,l]of i){if(l.length<2||a<0)continue;
l.sort((c,h)=>o(c)-o(h));let u=Math.min(Mt*.6,l.length*16);l.forEach((c,h)=>s[c]=((h+.5)/l.length-.5)*u)}return s}function ya([e,t],n,r,i,s,o){let a=n==="left",
l=a?-1:1,[u,c]=[ae,s.height-Ci],h=d=>{let m=d===a?u:c;return{x:l*oe,y:m,clear:m}},p=(d,m)=>{if(d<0)return h(m);let y=i.get(r[d]),v=m===a;return{x:y.x+(y.unit<0?
l*oe:0)+(m?0:o),y:v?y.y+y.block.height:y.y,clear:v?s.bottoms[y.row]:s.tops[y.row]}};return[p(e,!0),p(t,!1)]}function va(e,t){let n=Math.sign(t.clear-e.clear)||Math.
sign(t.y-e.y)||1,r=Ti(e,t,n);if(Math.abs(e.x-t.x)<.5)return{parts:[["M",[e.x,e.y]],["L",[t.x,t.y]]],at:r};let i=Math.max(10,Math.abs(t.clear-e.clear)/2)*n,s=["C",
[e.x,e.clear+i],[t.x,t.clear-i],[t.x,t.clear]];return{parts:[["M",[e.x,e.y]],["L",[e.x,e.clear]],s,["L",[t.x,t.y]]],at:r}}var Ti=(e,t,n)=>[[e.x,e.y+n*14],[t.x,t.
y-n*17],[e.x,e.y+n*8]];function wa([e,t],n,r,i){let s=n[2],o=r==="left"?-1:1,a=i.walls[r==="left"?0:1]+o*(s+1)*Ai,l=r==="left"?1:-1,u=5+s%4*2.5,[c,h]=[e.clear+l*
u,t.clear-l*u],p=[[e.x,e.y],[e.x,c],[a,c],[a,h],[t.x,h],[t.x,t.y]];return{parts:_a(p),at:Ti(e,t,l)}}function _a(e){let t=[["M",e[0]]];for(let n=1;n<e.length-1;n++){
let[r,i,s]=[e[n-1],e[n],e[n+1]],o=Math.min(6,er(r,i)/2,er(i,s)/2);t.push(["L",Ni(i,r,o)],["Q",i,Ni(i,s,o)])}return t.push(["L",e[e.length-1]]),t}var er=(e,t)=>Math.
hypot(e[0]-t[0],e[1]-t[1]);function Ni(e,t,n){let r=er(e,t)||1;return[e[0]+(t[0]-e[0])*n/r,e[1]+(t[1]-e[1])*n/r]}function xa([e,t],n,r,i,s){let[o,a]=[e,t].map(y=>y<
0?void 0:r.get(n[y])),l=(y,v)=>y?y.y+y.block.height/2:v,[u,c]=[l(o,0),l(a,i.height)],h=(y,v,g,w)=>{if(!y)return{x:0,y:v,clear:v,sideways:!1};if(y.unit>=0)return{
x:y.x+w*Mt/2,y:v,clear:v,sideways:!0};let x=g>=v;return{x:y.x,y:x?y.y+y.block.height:y.y,clear:x?i.bottoms[y.row]:i.tops[y.row],sideways:!1}},[p,d]=[h(o,u,c,1),
h(a,c,u,-1)];if(o&&a&&o.unit<0&&a.unit<0&&o.row===a.row)return ka(p,d);let m=p.sideways&&d.sideways?(s*4%9-4)*4:0;return $a(p,d,m)}var xe=15;function ka(e,t){let n=Math.
max(e.clear,t.clear)+xe+6;return{parts:[["M",[e.x,e.y]],["L",[e.x,e.clear]],["C",[e.x,n],[t.x,n],[t.x,t.clear]],["L",[t.x,t.y]]],at:[[(e.x+t.x)/2,n]]}}function $a(e,t,n){
let r=Math.abs(t.y-e.y),i=Math.sign(t.y-e.y),s=[e.x,e.y],o=[t.x,t.y],a=[(e.x+t.x)/2,(e.y+t.y)/2];if(r<3||e.x===t.x&&!e.sideways&&!t.sideways)return{parts:[["M",
s],["L",o]],at:[a]};if(r<60&&(e.sideways||t.sideways)&&e.clear===e.y&&t.clear===t.y){let p=e.sideways?[a[0],e.y]:[e.x,a[1]],d=t.sideways?[a[0],t.y]:[t.x,a[1]];return{
parts:[["M",s],["C",p,d,o]],at:[a]}}let l=Math.min(24,r/2)*i,u=[["M",s]],[c,h]=[e.sideways?e.y+l:e.clear+i*xe,t.sideways?t.y-l:t.clear-i*xe];return e.sideways?u.
push(["C",[n,e.y],[n,e.y],[n,c]]):e.x===n?u.push(["L",[n,c]]):u.push(["L",[e.x,e.clear]],["C",[e.x,c],[e.x,c],[(e.x+n)/2,c]],["C",[n,c],[n,c],[n,c+i*Math.min(xe,
Math.abs(h-c)/2)]]),t.sideways?u.push(["L",[n,h]],["C",[n,t.y],[n,t.y],o]):t.x===n?u.push(["L",o]):u.push(["L",[n,h-i*Math.min(xe,Math.abs(h-c)/2)]],["C",[n,h],
[n,h],[(t.x+n)/2,h]],["C",[t.x,h],[t.x,h],[t.x,t.clear]],["L",o]),{parts:u,at:[.5,.35,.65,.2,.8].map(p=>[n,c+(h-c)*p])}}var ke={step:26,folded:38,title:38};function sr(e,t){
let n=new Set,r=new Set;for(let{unit:i,around:s,kind:o,w:a,h:l}of e.boxes){let u=o==="node"?t<=ke.step:o==="folded"?t<=ke.folded:t*1.25<=l&&t*4<=a;s!==null&&!(u&&
n.has(s))||(n.add(i),o==="open"&&r.add(i),s!==null&&r.delete(s))}return t>ke.title&&Ma(e,n,r),{units:n,whole:r}}function Ma({boxes:e},t,n){for(let r=e.length-1;r>
0;r--){let{unit:i,kind:s,level:o,w:a,h:l}=e[r],u=[];if(s!=="open"||!t.has(i)||n.has(i))continue;for(let h=r+1;e[h]?.level>o;h++)u.push(e[h]);let c=u.filter(h=>h.
around===i&&t.has(h.unit));if(!(c.length>1?c.reduce((h,p)=>h+p.w*p.h,0)*3>a*l:c.length&&!n.has(c[0].unit))){for(let h of u)t.delete(h.unit)&&n.delete(h.unit);n.
add(i)}}}function Se(e,{units:t,whole:n}){let r=F(e.within);return t.has(r)&&!n.has(r)&&(e.from===null||t.has(e.from))&&(e.to===null||t.has(e.to))}var je=96,Qe=class{cells=new Map;*near([
t,n,r,i]){for(let s=Math.floor(t/je);s<=Math.floor(r/je);s++)for(let o=Math.floor(n/je);o<=Math.floor(i/je);o++)yield`${s} ${o}`}add(t){for(let n of this.near(t)){
let r=this.cells.get(n);r?r.push(t):this.cells.set(n,[t])}}has([t,n,r,i]){for(let s of this.near([t,n,r,i]))for(let o of this.cells.get(s)??[])if(o[0]<r&&t<o[2]&&
o[1]<i&&n<o[3])return!0;return!1}};function Sa(e){let t=[];for(let[,n,r]of e.matchAll(/([MLQC])([^MLQC]*)/g)){let i=r.split(/[ ,]/).map(Number),s=t[t.length-1];
if(n==="M"||n==="L")t.push([i[0],i[1]]);else for(let o=1;o<=8;o++){let a=o/8,l=1-a,u=c=>n==="Q"?l*l*s[c]+2*l*a*i[c]+a*a*i[2+c]:l**3*s[c]+3*l*l*a*i[c]+3*l*a*a*i[2+
c]+a**3*i[4+c];t.push([u(0),u(1)])}}return t}function*Ea(e){let t=Sa(e.d),n=e.width/2+.5;for(let r=1;r<t.length;r++){let[[i,s],[o,a]]=[t[r-1],t[r]],l=i===o||s===
a,u=l?1:Math.ceil(Math.hypot(o-i,a-s)/8);for(let c=0;c<u;c++){let[h,p]=[c/u,(c+1)/u],d=[i+(o-i)*h,i+(o-i)*p],m=[s+(a-s)*h,s+(a-s)*p];yield[Math.min(...d)-n,Math.
min(...m)-n,Math.max(...d)+n,Math.max(...m)+n]}}}function*Oa(e,t,n){let{x:r,y:i,w:s,h:o,unit:a}=t,l=(a<0?e.marked.has(-a-1):e.marks.has(a))?8:0;if(t.kind==="fol\
ded")yield[r-8,i-3-l,r+s+8,i+o+8];else if(t.kind==="open"){yield[r,i-3,r+s,i+Math.max(ae,n*1.35)+2];for(let[u,c]of[[r,r],[r+s,r+s]])yield[u-1,i,c+1,i+o];yield[r,
i+o-1,r+s,i+o+1]}else{let{left:u,right:c}=rn(e,t.unit),h=p=>p.length?Math.max(...p.map(d=>ce(d.text)))+6:0;yield[r-h(u)-1,i-1-l,r+s+h(c)+4,i+o+1]}}var Je=class{constructor(t,n,r,i){
this.size=r;this.textOf=i;for(let s of n.boxes)for(let o of Oa(t,s,r))this.taken.add(o);for(let s of n.lines)for(let o of Ea(s))this.taken.add(o);this.labels=this.
placed(n.lines.filter(s=>s.side!=="bridge"),this.taken)}size;textOf;taken=new Qe;labels;of(t){return this.placed(t,new Qe)}placed(t,n){let{size:r,taken:i}=this,
s=r*.62,o=[];for(let a of t){let l=z(this.textOf(a),r,a.side==="bridge"),u=5+a.width/2;if(!l)continue;let c=({x:d,y:m})=>[d-2,m-s-2,d+l+2,m+3],p=a.at.flatMap(([
d,m])=>[d+u,d-u-l].map(y=>({line:a,x:y,y:m+s/2}))).find(d=>!i.has(c(d))&&!n.has(c(d)));p&&(n.add(c(p)),o.push(p))}return o}};var Na=28;function Li(e,t=1/0){let n=new Set,r={open:n,turn:new Map},i=[0],[s,o]=[1,0],a=u=>e.frame(le(e,r,u)).units.length,l=u=>e.frame(u).counts[0]+e.frame(u).
counts[1];for(;i.length;){i.sort((p,d)=>l(d)-l(p));let u=i.shift();if(u!==0&&(s+a(u)>Na||l(u)<o))break;n.add(e.alike[u]);let{left:c,right:h}=sn(e,r);if(u!==0&&(h-
c)*nn>t){n.delete(e.alike[u]),o=Math.max(o,l(u)/2);continue}s+=a(u);for(let p of e.frame(le(e,r,u)).units)p<0&&i.push(-p-1)}return r}function Ii(e,t,n){let r=new Set;
return e.data.frames.forEach((i,s)=>{e.depth[s]<n&&r.add(e.alike[s])}),{open:r,turn:t.turn}}function Ui(e,t){let n=e.deepest+1;return e.data.frames.forEach((r,i)=>{
!e.isTurn(i)&&!qt(e,t,i)&&(n=Math.min(n,e.depth[i]))}),n}function Di(e,t,n){let r=new Set(t.open),i=e.alike[n];return r.delete(i)||r.add(i),{open:r,turn:t.turn}}
function Bi(e,t,n){let r=new Set(t.open),i=s=>{r.add(e.alike[s]);for(let o of e.frame(s).units)o<0&&i(-o-1)};return i(n),{open:r,turn:t.turn}}function zi(e,t,n,r){
let i=e.frame(n).units.length-1;return{open:t.open,turn:new Map(t.turn).set(e.alike[n],Math.max(0,Math.min(i,r)))}}function on(e,t,n){let[r,i]=[new Set(t.open),
new Map(t.turn)],s=n;for(let o of e.above(n))e.frame(o).kind==="loop"&&i.set(e.alike[o],e.framePlace[-s-1]),r.add(e.alike[o]),s=F(o);return{open:r,turn:i}}function St(e,t,n){
let r=F(0);for(let i of[...e.above(n).reverse().map(F),n])t.byUnit.has(i)&&(r=i);return r}function or(e,t,n){let r=[`pair=${e}`];t!==null&&r.push(t<0?`frame=${-t-
1}`:`step=${t}`),r.push(`open=${Ca([...n.open])}`);let i=[...n.turn].filter(([,s])=>s).map(([s,o])=>`${s}:${o}`);return`#${[...r,...i.length?[`turn=${i.join(".")}`]:
[]].join("&")}`}function Ca(e){let t=[];for(let n of e.sort((r,i)=>r-i)){let r=t.at(-1);r&&r[1]===n-1?r[1]=n:t.push([n,n])}return t.map(([n,r])=>n===r?`${n}`:`${n}\
-${r}`).join(".")}function Fi(e,t){let n=new Map(e.replace(/^#/,"").split("&").map(u=>u.split("=",2))),r=(u,c)=>{let h=n.get(u),p=Number(h);return h&&/^\d+$/.test(
h)&&p<c?p:null},i=r("pair",t.length)??0,s=t[i],[o,a]=[r("step",s.count),r("frame",s.data.frames.length)],l=o??(a===null?null:F(a));return{pair:i,unit:l,opened:n.
has("open")?Aa(n.get("open"),n.get("turn")??""):null}}function Aa(e,t){let n=new Set,r=new Map;for(let[,i,s]of e.matchAll(/(\d{1,6})(?:-(\d{1,6}))?/g))for(let o=Number(
i);o<=Number(s??i);o++)n.add(o);for(let[,i,s]of t.matchAll(/(\d{1,6}):(\d{1,6})/g))r.set(Number(i),Number(s));return{open:n,turn:r}}function lr(e,t){let{nodes:n,saved:r}=e.data,i=e.isForward(t),s=i?e.pulled[t]:n.partners[t],o=[...new Set(n.inputs[t])],a=i?(e.savedFrom.get(t)??[]).map(([l,u])=>({
value:t,users:e.usersOf(l),bytes:u})):r.filter(([,l])=>o.includes(l)).map(([l,,u])=>({value:l,users:[t],bytes:u}));return{partners:s,inputs:o,users:e.usersOf(t),
saved:a}}function ar(e,t,n,r,i){let s=[],o=m=>{let y=St(e,t,m),v=e.above(y).filter(g=>t.byUnit.has(-g-1));return{shown:y,frames:v}},[a,l]=[o(n),o(r)],u=a.frames.
find(m=>l.frames.includes(m));if(u===void 0||a.shown===l.shown)return s;let c=(m,y,v)=>{let g=t.lineOf.get(rr(m,i,y,v));g&&s.push(g)},h=m=>m.frames.slice(0,m.frames.
indexOf(u)),p=a.shown;for(let m of h(a))[p]=[-m-1,c(m,p,null)];let d=l.shown;for(let m of h(l))[d]=[-m-1,c(m,null,d)];return c(u,p,d),s}function Ri(e,t,n){let r=new Map,
i=new Set,s=new Set,o=St(e,t,n),a=(c,h)=>{let p=St(e,t,c);s.add(c),p!==o&&!r.has(p)&&t.byUnit.get(p).kind!=="open"&&r.set(p,h)};if(r.set(o,"self"),n<0){for(let c of t.
lines)(c.from===n||c.to===n)&&i.add(c);return{units:r,lines:i,steps:s}}let l=lr(e,n),u=e.isForward(n)?"left":"right";l.partners.forEach(c=>a(c,"partner"));for(let{
value:c,users:h}of l.saved)for(let p of h){if(c<e.count){a(c,"saved");for(let d of ar(e,t,c,p,"bridge"))i.add(d)}a(p,"saved")}for(let c of l.inputs)if(!(c>=e.count)){
a(c,"input");for(let h of ar(e,t,c,n,u))i.add(h)}for(let c of l.users){a(c,"user");for(let h of ar(e,t,n,c,u))i.add(h)}return{units:r,lines:i,steps:s}}function yt({model:e,value:t,go:n}){return t<0||t>=e.count?f("span",{class:"port",title:e.specOf(t),children:f("bdi",{children:e.nameOf(t)})}):f("button",{class:`\
link ${e.isForward(t)?"forward":"backward"}`,title:e.call(t),onClick:()=>n(t),children:f("bdi",{children:e.nameOf(t)})})}function fe({model:e,values:t,go:n,most:r=8}){
return t.length?f("span",{class:"links",children:[t.slice(0,r).map(i=>f(yt,{model:e,value:i,go:n},i)),t.length>r&&f("span",{class:"soft",children:["and ",E(t.length-
r)," more"]})]}):f("span",{class:"soft",children:"none"})}var ur=30;function an({share:e,side:t}){return f("svg",{class:`bar ${t}`,width:ur,height:"8","aria-hid\
den":"true",children:[f("rect",{width:ur,height:"8",rx:"2",class:"track"}),f("rect",{width:Math.max(e>0?1:0,ur*Math.min(1,e)),height:"8",rx:"2"})]})}var Pa=60,ft=class extends W{state={
sort:this.props.sort,most:Pa};sorted(){let[t,n]=this.state.sort,{value:r}=this.props.columns[t],i=new Map(this.props.rows.map(s=>[s,r(s)]));return[...this.props.
rows].sort((s,o)=>{let[a,l]=[i.get(s),i.get(o)];return n*(a<l?-1:a>l?1:0)})}render({columns:t,rows:n,empty:r}){if(!n.length)return f("p",{class:"soft",children:r});
let{sort:[i,s],most:o}=this.state,a=t.map(u=>typeof u.value(n[0])=="number"),l=(u,c)=>f("th",{class:a[c]?"r":"","aria-sort":i===c?s>0?"ascending":"descending":void 0,
children:f("button",{onClick:()=>this.setState({sort:[c,i===c?s>0?-1:1:a[c]?-1:1]}),children:u.name})},c);return f("div",{class:"table",children:[f("table",{children:[
f("thead",{children:f("tr",{children:t.map(l)})}),f("tbody",{children:this.sorted().slice(0,o).map((u,c)=>f("tr",{children:t.map((h,p)=>f("td",{class:a[p]?"r":"",
children:h.cell(u)}))},c))})]}),n.length>o&&f("button",{class:"more",onClick:()=>this.setState({most:o*5}),children:["show more: ",E(o)," of ",E(n.length)]})]})}};function Vi(e){let{selected:t}=e;return t===null?f(Ta,{...e}):t<0?f(Ia,{...e,id:-t-1}):f(Ua,{...e,node:t})}function cr({rows:e}){return f("dl",{children:e.map(([
t,n])=>n!==""&&n!==null&&[f("dt",{children:t},t),f("dd",{children:n},`${t} `)])})}function Ta({page:e,model:t}){let[n,r,,i,s]=t.frame(0).counts;return f("div",{
class:"panel",children:[f("h2",{children:f("bdi",{children:e.title})}),f(cr,{rows:[["Forward",`${Q(n,"step")}${we(i)}`],["Backward",r?`${Q(r,"step")}${we(s)}`:"\
this graph has no backward"],["Saved",La(t)],["Peak",t.timed?A(t.data.memory.peak[1]):""],["Changes",jn(t,0)],...e.facts.map(([o,a])=>[o,f("bdi",{children:a})])]}),
e.notes.map(o=>f("p",{class:"remark",children:f("bdi",{children:o})},o)),f("p",{class:"soft",children:"The forward runs down on the left, the backward up on the\
 right. Bands between them are saved tensors. Click a frame to open it, a step to see what belongs to it."})]})}function La(e){let{own:[t,n],rest:[r,i]}=e.savedSum(),
s=r?`. ${Q(r,"more value")}, ${A(i)}, ${r===1?"is":"are"} the caller's, or ${r===1?"shares":"share"} memory with these`:"";return t||r?`${A(n)} in ${Q(t,"value")}${s}`:
A(0)}function Ia({model:e,opened:t,id:n,go:r,onFold:i,onOpenAll:s,onTurn:o}){let a=e.frame(n),[l,u,c,h,p]=a.counts,d=a.kind==="loop"?Bt(e,t,n):-1,m=a.kind==="lo\
op"?[]:[...e.inside(n)].filter(y=>e.data.nodes.flops[y]>0).sort((y,v)=>e.data.nodes.flops[v]-e.data.nodes.flops[y]).slice(0,6);return f("div",{class:"panel",children:[
f("h2",{children:f("bdi",{children:[e.path(n)||e.title(n),d>=0?` × ${a.units.length}`:""]})}),f("p",{class:"buttons",children:[f("button",{onClick:()=>i(n),children:qt(
e,t,n)?"close":"open"}),f("button",{onClick:()=>s(n),children:"open all inside"})]}),d>=0&&f("p",{class:"turns",children:[f("button",{"aria-label":"previous tur\
n",disabled:d===0,onClick:()=>o(n,d-1),children:"‹"}),f("label",{children:["turn ",f("input",{type:"number",min:1,max:a.units.length,value:d+1,onChange:y=>o(n,
Number(y.currentTarget.value)-1)})," of ",E(a.units.length)]}),f("button",{"aria-label":"next turn",disabled:d===a.units.length-1,onClick:()=>o(n,d+1),children:"\
›"}),f("bdi",{class:"soft",children:e.path(-a.units[d]-1)})]}),f(cr,{rows:[["Kind",a.kind==="loop"?`loop of ${E(a.units.length)}`:a.kind],[a.kind==="module"?"\
Class":"Code",a.label?f("bdi",{children:e.text(a.label)}):""],["Forward",`${Q(l,"step")}${we(h)}`],["Backward",`${Q(u,"step")}${we(p)}`],["Saved",A(c)],["Change\
s",jn(e,n)],["Largest products",m.length?f(fe,{model:e,values:m,go:r}):""],["Inside",a.parent>=0?f("button",{class:"link",onClick:()=>r(F(a.parent)),children:f(
"bdi",{children:e.title(a.parent)})}):""]]})]})}function Ua({page:e,model:t,node:n,go:r,jump:i}){let{nodes:s,sources:o}=t.data,a=lr(t,n),l=t.isForward(n),u=o[s.
source[n]],c=t.data.ports.filter(p=>!p.into&&p.role!=="saved"&&p.value===n),h=t.above(n).filter(p=>p>0).reverse();return f("div",{class:"panel",children:[f("h2",
{class:l?"forward":"backward",children:f("bdi",{children:t.nameOf(n)})}),f("p",{class:"soft",children:`${l?"Forward":"Backward"}, step ${E(n+1)} of ${E(t.count)}`}),
f("pre",{children:f("bdi",{children:t.call(n)})}),t.marks.has(n)&&f(Qn,{page:e,model:t,node:n,jump:i}),f(cr,{rows:[["Operator",`${t.text(s.op[n])} (${t.kinds[n]}\
)`],["Type",f("code",{children:t.text(s.spec[n])})],[l?"In the backward":"In the forward",f(fe,{model:t,values:a.partners,go:r})],["Echo",t.echoOf(n)],["Inputs",
f(fe,{model:t,values:a.inputs,go:r})],["Users",f(fe,{model:t,values:a.users,go:r})],["Leaves as",c.length?f("span",{class:"links",children:c.map(p=>f("span",{class:"\
port",title:t.text(p.spec),children:[p.role," ",f("bdi",{children:t.text(p.name)})]}))}):""],["Saved",a.saved.length?a.saved.map(p=>f("div",{children:[A(p.bytes),
" ",l?"for ":"from ",l?f(fe,{model:t,values:p.users,go:r}):f(yt,{model:t,value:p.value,go:r})]},p.value)):""],["FLOPs",s.flops[n]?ve(s.flops[n]):""],["Bytes",t.
timed?`${A(s.read[n])} read, ${A(s.written[n])} written${t.isView(n)?", a view":s.memory[n]?`, ${A(s.memory[n])} new`:""}`:""],["Live",t.timed?A(t.data.memory.live[n]):
""],["Source",u?f("span",{children:[f("bdi",{children:t.lineOf(n)}),u[2]?f("span",{class:"soft",children:[" in ",f("bdi",{children:t.text(u[2])})]}):"",f("code",
{class:"source",children:f("bdi",{children:t.text(u[3])})})]}):""],["Module",u&&t.moduleOf(n)?f("bdi",{children:t.moduleOf(n)}):""],["Within",h.length?f("span",
{class:"links",children:h.map(p=>f("button",{class:"link",onClick:()=>r(F(p)),children:f("bdi",{children:t.title(p)})},p))}):""],...Da(t,n)]})]})}function Da(e,t){
let n=e.data.stats?.value.indexOf(t)??-1;if(n<0)return[];let[r,i,s,o,a,l,u,c,h]=e.data.stats.rows[n];return[["NaN and Inf",f("span",{class:u||c?"alarm":"",children:`${E(
u)} NaN, ${E(c)} Inf of ${E(r)}`})],["Values",`${Ut(i)} to ${Ut(s)}, mean ${Ut(o)}, deviation ${Ut(a)}, norm ${Ut(l)}, ${E(h)} zero`]]}var Gi=`/* The picture alone: also inside exported files. Okabe and Ito's colours, which colour-blind people tell apart. */
:root { --fwd: #0072b2; --fwd-soft: #e6f1f8; --fwd-line: #8fbcd9; --bwd: #b04c00; --bwd-soft: #fcefe4; --bwd-line: #e5b38c;
  --save: #00765a; --save-soft: #cdebe1; --ink: #1c2127; --soft: #56606b; --line: #cfd6de; --paper: #ffffff; --band: #f6f8fa;
  --grey: #eef0f3; --found: #f5d000; --found-ink: #3a3200; --alarm: #c0182b; --alarm-ink: #ffffff; --mark: #8a2f9e; --near: #8a6d00; --near-soft: #fff1b8; }
@media (prefers-color-scheme: dark) { :root { --fwd: #6fbdec; --fwd-soft: #15293a; --fwd-line: #386a8c; --bwd: #f0a35e; --bwd-soft: #352415;
  --bwd-line: #8a5a2f; --save: #45cfa5; --save-soft: #14453a; --ink: #e7eaee; --soft: #a4afba; --line: #38414c; --paper: #14181d; --band: #1a1f26;
  --grey: #262c34; --found: #d7b600; --found-ink: #1c1900; --alarm: #ff6b78; --alarm-ink: #23060a; --mark: #dd9cec; --near: #e8c547; --near-soft: #453a10; } }
@media print { :root { --fwd: #0072b2; --fwd-soft: #e6f1f8; --fwd-line: #8fbcd9; --bwd: #b04c00; --bwd-soft: #fcefe4; --bwd-line: #e5b38c;
  --save: #00765a; --save-soft: #cdebe1; --ink: #1c2127; --soft: #56606b; --line: #cfd6de; --paper: #ffffff; --band: #f6f8fa; --grey: #eef0f3; --mark: #8a2f9e; \
--near: #8a6d00; --near-soft: #fff1b8; } }
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
.step.neighbor > rect { fill: var(--near-soft); stroke: var(--near); stroke-width: 2; }
.frame.open.region .body { stroke: var(--ink); stroke-dasharray: 7 4; stroke-width: 1.4; }
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
`;var za=9.05;function dr(e){let t=za/e;return{least:t,near:t<=ue}}var Et=(e,{least:t})=>Math.max(e,t),Hi=({least:e})=>Math.max(1,e/ue),it=.36;function Fa({line:e,
detail:t}){let n=e.side==="bridge"||!t.near?void 0:`url(#tip-${e.side})`;return f("g",{class:`line ${e.side}`,"data-line":e.key,children:f("path",{d:e.d,"stroke\
-width":e.width*Hi(t),"marker-end":n})})}function pr(e){return e.side==="bridge"?e.label==="0"?"":A(Number(e.label)):Gt(e.label,150,10)}function ln({least:e}){return[
10.5,12,ue].find(t=>e<=t)??ue}function mr({label:{line:e,x:t,y:n},size:r,bright:i}){return f("text",{class:`label ${e.side}${i?" bright":""}`,x:t,y:n,"font-size":r,
children:pr(e)})}function gr(e){let{box:t}=e;return t.kind==="node"?f(Ra,{...e}):f(Wa,{...e})}function Ra({model:e,box:t,detail:n,marks:r,role:i}){let s=t.unit,
o=e.isForward(s)?"forward":"backward",a=e.bad.get(s),l=e.marks.get(s)?.kind,u=Et(e.isView(s)?10.5:11.5,n),c=Math.max(e.isView(s)?en:nr,u+5),h=t.y+(t.h-c)/2,p=h+
c/2+u*it,d=["step",o,e.isView(s)&&"view",e.kinds[s]==="guard"&&"guard",e.isNeighbor(s)&&"neighbor",a&&"bad",l,i,r.steps?.has(s)&&"match"],m=e.shorts[s],y=e.nameOf(
s),v=m==="getitem"?y:Va(y,m),g=t.w-13,w=m==="getitem"?"":Gt(m,g,u),x=g-z(w,u),$=w===m||!w?Gt(v,x,u):"";return f("g",{class:d.filter(Boolean).join(" "),"data-uni\
t":s,role:"button","aria-label":`${m} ${y}${l?`, ${l}`:""}`,children:[f("rect",{x:t.x,y:h,width:t.w,height:c,rx:e.isView(s)?3:5}),f("text",{x:t.x+7,y:p,"font-si\
ze":u,children:[w,$&&f("tspan",{class:"soft",children:$})]}),e.isSaved(s)&&f("circle",{class:"kept",cx:t.x+t.w,cy:t.y+t.h/2,r:3}),a&&f(Ki,{x:t.x+t.w-26,bottom:h+
3,bad:a,detail:n}),l&&f(br,{x:t.x,y:h,text:Dt[l],detail:n}),n.near&&f(Ga,{model:e,box:t,detail:n})]})}function Va(e,t){let n=t.replace(/^_+/,"");return e===t||e===
n?"":e.startsWith(n)?e.slice(n.length):` ${e}`}function qi({kind:e,x:t,bottom:n,text:r,detail:i}){let s=Et(9.5,i),o=z(r,s,!0)+s,a=s*1.4,l=n-a;return f("g",{class:e,
children:[f("rect",{x:t,y:l,width:o,height:a,rx:a/2}),f("text",{x:t+o/2,y:l+a/2+s*it,"font-size":s,children:r})]})}function Ki({x:e,bottom:t,bad:n,detail:r}){return f(
qi,{kind:"badmark",text:n.nan?"NaN":"Inf",x:e,bottom:t,detail:r})}function br({x:e,y:t,text:n,detail:r}){let i=Et(11,r),s=i*1.36,o=Math.max(s,z(n,i,!0)+i*.64),a=n.
length>1?0:-o/2;return f("g",{class:"changemark",transform:`translate(${e} ${Math.min(t,t+7-s/2)})`,children:[f("rect",{x:a,y:-s/2,width:o,height:s,rx:s/2}),f("\
text",{x:a+o/2,y:i*it,"font-size":i,children:n})]})}function fr(e){return bt.filter(t=>e[t]).map(t=>`${Dt[t]}${e[t]}`).join(" ")}function Ga({model:e,box:t,detail:n}){
let{left:r,right:i}=rn(e,t.unit),s=t.y+t.h/2,o=(a,l)=>a.map((u,c)=>{let h=ce(u.text),p=l<0?t.x-5-h:t.x+t.w+5,d=s+(c-a.length/2)*tn;return f(ji,{...u,x:p,y:d,wide:h,
detail:n})});return f("g",{children:[o(r,-1),o(i,1)]})}function Wa({model:e,box:t,detail:n,marks:r,role:i}){let s=-t.unit-1,o=e.frame(s),[a,l,u,c,h]=o.counts,[p,
d]=[t.mid-J,t.mid+J],m=t.y+t.h/2,y=ir(e)(u),{near:v}=n,g=o.kind==="loop",w=r.matches?.get(s),x=e.marked.get(s),$=Et(12.5,n),P=Et(10.5,n),O=u>0&&(v||a>0&&l>0),B=u>
0&&v&&z(A(u),P,!0)<=2*J-4,Z=(rt,V,j,G,q)=>{let b=G?Q(G,"step"):"no step",k=q>0?ie(q):"",_=hr(e,s,j-18,$),M=z(`${b}   ${k}`,P)<=j-20;return!G&&!v?null:f("g",{class:`\
half ${rt}${G?"":" empty"}`,children:[g&&[6,3].map(S=>f("rect",{class:"behind",x:V+(rt==="forward"?-S:S),y:t.y+S,width:j,height:t.h,rx:6})),f("rect",{x:V,y:t.y,
width:j,height:t.h,rx:6}),(G||rt==="forward")&&f("text",{class:"title",x:V+10,y:v?t.y+20:m+$*it,"font-size":$,children:_}),v&&f("text",{class:"soft",x:V+10,y:G||
rt==="forward"?t.y+40:m+P*it,"font-size":P,children:b}),v&&k&&M&&f("text",{class:"soft",x:V+j-10,y:t.y+40,"text-anchor":"end","font-size":P,children:k})]})};return f(
"g",{class:`frame folded ${o.kind} ${i??""} ${w?"match":""}`,"data-unit":t.unit,role:"button","aria-expanded":"false","aria-label":yr(e,s),children:[f("rect",{class:t.
level%2?"hit":"hit odd",x:t.x,y:t.y,width:t.w,height:t.h,rx:6}),Z("forward",t.x,p-t.x,a,c),Z("backward",d,t.x+t.w-d,l,h),O&&f("path",{class:"band",d:`M${p} ${m}\
H${d}`,"stroke-width":y}),B&&f("text",{class:"size",x:t.mid,y:m-y/2-4,"font-size":P,children:A(u)}),O&&f(Xi,{points:[[p,m],[d,m]],detail:n}),e.badFrames.has(s)&&
f(Ki,{x:p-36,bottom:t.y+4,bad:{nan:1,inf:0},detail:n}),x&&f(br,{x:d+8,y:t.y,text:fr(x),detail:n}),w&&f(qi,{kind:"found",x:t.x+4,bottom:t.y+6,text:String(w),detail:n})]})}
function Xi({points:e,detail:t}){return f("g",{class:"dots",children:e.map(([n,r])=>f("circle",{cx:n,cy:r,r:3*Hi(t)},`${n} ${r}`))})}function yr(e,t){let n=e.frame(
t),r=e.title(t),i=e.text(n.label),s=n.kind==="loop"?` × ${n.units.length}`:"";return`${r}${s}${i&&i!==r?`  ${i}`:""}`}function hr(e,t,n,r,i=!1){let s=e.frame(t),
o=e.text(s.label),a=e.title(t),l=/^\d/.test(a),u=s.kind==="loop"?` × ${s.units.length}`:"",c=o===a?"":o||(l?Ha(e,t):""),h=s.kind==="line"&&c!=="",p=i&&l?e.path(
s.parent):"",d=(p?`${p}.${a}`:a).split(/\.(?=[A-Za-z_])/),m=s.kind==="line"?[a]:d.map((x,$)=>($?"…":"")+d.slice($).join(".")).concat(a),y=/\.\d[^.]*$/.test(a)?
[...a].map((x,$)=>`…${a.slice($+1)}`):[],v=[...c?m.map(x=>`${x+u}  ${c}`):[],...h?[]:[...m,...y].map(x=>x+u)],g=x=>z(x,r,!0)<=n,w=a.replace(/^.*:/,"line ");return Gt(
v.find(g)??(h?g(`${w}  code`)?`${w}  ${c}`:g(w)?w:a.replace(/^.*:/,":"):a+u),n,r,!0)}function Ha(e,t){let{flops:n,read:r,written:i}=e.data.nodes,s=a=>r[a]+i[a];
if(e.frame(t).counts[0]>8)return"";let o=[...e.inside(t)].filter(a=>e.isForward(a)&&!e.isView(a)).sort((a,l)=>n[l]-n[a]||s(l)-s(a));return o.length?e.shorts[o[0]].
replace(/^_*(native_)?|_legit.*$/g,""):""}function Yi(e,t,n){return z(yr(e,-t.unit-1).slice(0,6),n.least,!0)<Zi(e,t)-20}function Zi(e,{unit:t,x:n,w:r,mid:i}){return Math.
min(i-n,e.frame(-t-1).counts[1]>0?n+r-i:1/0)-J}function qa({box:e,kind:t,whole:n,halved:r,back:i}){let s=e.mid-J-e.x;return f("g",{class:`frame open ${t} ${e.level%
2?"odd":""}${n?" whole":""}`,"data-unit":e.unit,children:[f("rect",{class:"body",x:e.x,y:e.y,width:e.w,height:e.h,rx:8}),r&&f("rect",{class:"tint forward",x:e.x,
y:e.y,width:s,height:e.h,rx:8}),r&&i&&f("rect",{class:"tint backward",x:e.mid+J,y:e.y,width:e.x+e.w-e.mid-J,height:e.h,rx:8})]})}function Ka({model:e,opened:t,box:n,
detail:r,whole:i}){let s=-n.unit-1,o=e.frame(s),a=e.marked.get(s),{near:l}=r,u=Et(10.5,r),c=i&&Yi(e,n,r),h=c?Zi(e,n):n.w,p=Et(12.5,r),d=hr(e,s,h-18,p,i),m=i?Math.
max(p,Math.min(n.h*.5,r.least*1.3,(h-20)/Math.max(1,z(d,1,!0)))):p,y=o.kind==="loop",v=l&&o.counts[2]>0?`${A(o.counts[2])} saved`:"",g=l?"− ":"",w=Math.max(ae,
m*1.35),x=i?n.x+h-4:y&&l?n.mid-70:n.x+n.w-10-(v?z(v,u)+14:0),$=y&&l?n.mid+70+(a?z(fr(a),11,!0)+34:0):n.x+z(g,m)+40,P=x-n.x-14-z(g,m),O=i?d:m<=ke.title?hr(e,s,P,
m):"";return f("g",{class:"frame","data-unit":n.unit,children:[f("g",{"data-fold":s,class:"head",role:"button","aria-expanded":"true","aria-label":`close ${yr(e,
s)}`,children:[(O||l)&&!i&&f("rect",{x:n.x+.6,y:n.y+.6,width:n.w-1.2,height:w,rx:8}),O&&f("text",{class:"title",x:n.x+10,y:i?n.y+n.h/2+m*it:n.y+w/2+m*it,"font-s\
ize":m,"data-slack":i?void 0:P-z(O,m,!0),children:[g&&f("tspan",{class:"sign",children:g}),O]}),c&&o.counts[1]>0&&f("text",{class:"title",x:n.mid+J+10,y:n.y+n.h/
2+m*it,"font-size":m,children:d}),v&&!i&&$+z(v,u)<n.x+n.w-10&&f("text",{class:"soft",x:n.x+n.w-10,y:n.y+w/2+u*it,"text-anchor":"end","font-size":u,children:v})]}),
y&&l&&!i&&f(Xa,{model:e,opened:t,id:s,detail:r,x:n.mid,y:n.y}),y&&a&&l&&f(br,{x:n.mid+72,y:n.y+12,text:fr(a),detail:r}),s===0&&l&&f(Wi,{model:e,role:"input",middle:n.
mid-oe,y:n.y-23,detail:r}),s===0&&l&&f(Wi,{model:e,role:"tangent",middle:n.mid+oe,y:n.y+n.h+7,detail:r})]})}function Wi({model:e,role:t,middle:n,y:r,detail:i}){
let s=e.entering.filter(u=>u.role===t),a=s.slice(0,s.length>3?2:3).map(u=>({text:e.text(u.name),title:`${t} ${e.text(u.name)} ${e.text(u.spec)}`}));s.length>3&&
a.push({text:`+${s.length-2}`,title:s.slice(2).map(u=>e.text(u.name)).join(`
`)});let l=n-a.reduce((u,c)=>u+ce(c.text)+4,-4)/2;return f("g",{children:a.map(u=>{let c=ce(u.text),h=l;return l+=c+4,f(ji,{...u,role:t,y:r,wide:c,detail:i,x:h})})})}
function ji({x:e,y:t,wide:n,text:r,title:i,role:s,detail:o}){let a=Et(10,o),l=tn-2;return f("g",{class:`pill ${s}`,children:[f("title",{children:i}),f("rect",{x:e,
y:t+1,width:n,height:l,rx:l/2}),f("text",{x:e+n/2,y:t+1+l/2+a*it,"font-size":a,children:Gt(r,n-8,a,s==="gradient"||s==="output")})]})}function Xa({model:e,opened:t,
id:n,x:r,y:i,detail:s}){let o=Et(11.5,s),a=Bt(e,t,n),{units:l}=e.frame(n),u=l[a],c=(h,p,d,m)=>f("g",{class:`turn${h<0||h>=l.length?" off":""}`,"data-loop":n,"da\
ta-turn":h,role:"button","aria-label":m,children:[f("rect",{x:p-11,y:i+3,width:22,height:18,rx:4}),f("text",{x:p,y:i+12+o*it,"font-size":o,children:d})]});return f(
"g",{class:"stepper",children:[f("title",{children:e.text(e.frame(-u-1).name)}),f("rect",{class:"plate",x:r-66,y:i+2,width:132,height:20,rx:5}),c(a-1,r-54,"‹",
"previous turn"),f("text",{x:r,y:i+12+o*it,"font-size":o,children:Gt(`${a+1} of ${l.length}`,84,o,!0)}),c(a+1,r+54,"›","next turn")]})}function Qi({model:e,opened:t,
boxes:n,lines:r,detail:i,marks:s,shown:o,labels:a}){let l=[],u=new Map,c=ln(i);for(let h of n){if(!o.units.has(h.unit))continue;let p=o.whole.has(h.unit);if(h.kind!==
"open"){l.push(f(gr,{model:e,opened:t,box:h,detail:i,marks:s},`b${h.unit}`));continue}l.push(f(qa,{box:h,kind:e.frame(-h.unit-1).kind,whole:p,halved:!p||Yi(e,h,
i),back:!p||e.frame(-h.unit-1).counts[1]>0},`b${h.unit}`));let d=(r.get(-h.unit-1)??[]).filter(m=>Se(m,o));for(let m of d)if(m.side==="bridge")for(let y of m.ends)
u.set(String(y),y);l.push(f("g",{class:"lines",children:[...d].sort((m,y)=>+(m.side!=="bridge")-+(y.side!=="bridge")).map(m=>f(Fa,{line:m,detail:i},m.d))},`l${h.
unit}`)),l.push(f(Ka,{model:e,opened:t,box:h,detail:i,marks:s,whole:p},`h${h.unit}`))}return f("g",{children:[l,f(Xi,{points:[...u.values()],detail:i}),a.map(h=>f(
mr,{label:h,size:c},h.line.key))]})}function un(){let e=t=>f("marker",{id:`tip-${t}`,class:`tip ${t}`,viewBox:"0 0 8 8",refX:"7",refY:"4",markerWidth:"7",markerHeight:"\
7",markerUnits:"userSpaceOnUse",orient:"auto",children:f("path",{d:"M0 .8L8 4L0 7.2Z"})});return f("defs",{children:[e("left"),e("right")]})}function Ji(e,t){let{x:n,y:r,w:i,h:s,node:o}=e.visible(),a=document.createElementNS("http://www.w3.org/2000/svg","svg");re([f("title",{children:t}),f("rect",{class:"\
paper",x:n,y:r,width:i,height:s}),f(un,{}),o],a);let l={viewBox:`${n} ${r} ${i} ${s}`,width:String(Math.round(i)),height:String(Math.round(s)),class:"picture"};
for(let[c,h]of Object.entries(l))a.setAttribute(c,h);let u=new XMLSerializer().serializeToString(a).replace("</title>",`</title><style>${Gi}</style>`);return re(
null,a),`<?xml version="1.0" encoding="UTF-8"?>
${u}
`}function ts(e,t){let n=URL.createObjectURL(new Blob([t],{type:"image/svg+xml"})),r=document.createElement("a");r.href=n,r.download=e,r.click(),setTimeout(()=>URL.
revokeObjectURL(n),1e3)}async function es(e){try{return await navigator.clipboard.writeText(e),"The link is copied."}catch{return e}}var Ya={"":1,b:1,k:1024,kib:1024,kb:1e3,m:1024**2,mib:1024**2,mb:1e6,g:1024**3,gib:1024**3,gb:1e9},Za=3,cn="any:",ja=["names","operators","shapes","source lines",
"modules","parameters"],ns=[["op:mm","steps whose operator is mm (op:mm* for those that begin with it)"],["kind:matmul","matmul, convolution, attention, norm, s\
oftmax, reduction, pointwise, embedding, copy, creation, view, guard"],["is:saved","steps whose value is saved for the backward; also is:view, is:guard"],["side\
:backward","steps of the backward; also side:forward"],[">1MiB","steps that write more than 1 MiB; also <4KiB"],["module:layers.3","steps of this module and of \
those inside it"],["line:model.py:12","steps of a source line, or of a whole file"],["shape:3,4","values with these sizes next to one another"],["any:relu","ste\
ps that have a word anywhere: in source lines, modules, parameters and shapes, too"],["has:nan","steps whose values were measured and have NaN; also has:inf"]];
function rs(e){return e.data.marks?[...ns,["is:changed","steps that changed; also is:added, is:removed"]]:ns}var fn=class{constructor(t){this.model=t;this.lower=
t.strings.map(n=>n.toLowerCase()),this.lines=t.data.sources.map(n=>`${this.lower[n[0]]}:${n[1]}`),this.paths=t.data.frames.map((n,r)=>t.path(r).toLowerCase()),this.
codes=t.data.sources.map(n=>`${this.lower[n[2]]} ${this.lower[n[3]]}`)}model;lower;lines;codes;paths;find(t){let n=[...t.toLowerCase().matchAll(/(any:)?"([^"]*)"|(\S+)/g)].
map(g=>g[3]??`${g[1]??""}${g[2]}`).filter(Boolean);if(!n.length)return null;let r=[],i=[],s=[],o=!1;for(let g of n){let w=g.startsWith(cn)&&g.length>cn.length?null:
this.filterOf(g);typeof w=="string"?s.push(w):w?r.push(w):(o||=g.startsWith(cn),i.push(g.replace(cn,"")))}let a=i.map(g=>this.placesOf(g)),l=[[],[],[]],u=[];if(!s.
length)for(let g=0;g<this.model.count;g++)!r.every(w=>w(g))||!a.every(w=>w[g])||(!a.length||a.every(w=>w[g]&Za)?l[a.length?this.rank(g,i[0]):0].push(g):u.push(g));
let c=s.length||r.length?[[],[]]:this.framesOf(i),h=l.flat(),p=o||!h.length,d=g=>this.countsOf(g,a[0]),m=p?[...h,...u]:h,y=p?[]:u,v=n.map(g=>i.includes(g)?/\s/.
test(g)?`any:"${g}"`:`any:${g}`:g).join(" ");return{...this.sum(c,m,s.join(" ")),counts:d(m),elsewhere:{steps:y.length,counts:d(y),query:v}}}countsOf(t,n){return n?
ja.map((r,i)=>[r,t.reduce((s,o)=>s+(n[o]>>i&1),0)]).filter(([,r])=>r):[]}sum([t,n],r,i){let{model:s}=this,o=new Map,a=0,l=new Int32Array(s.data.frames.length);for(let u of r)
s.isForward(u)&&a++,l[s.data.nodes.frame[u]]++;return l.forEach((u,c)=>{if(u)for(let h=c;h>=0;h=s.frame(h).parent)o.set(h,(o.get(h)??0)+u)}),{units:[...t,...r,...n],
steps:new Set(r),within:o,forward:a,problem:i}}rank(t,n){let{model:r}=this,i=[r.shorts[t].toLowerCase(),this.lower[r.data.nodes.name[t]]];return i.includes(n)?0:
i.some(s=>s.startsWith(n))?1:2}framesOf(t){let{model:n}=this,r=[[],[]],i=new Set;return n.data.frames.forEach((s,o)=>{let a=this.lower[s.name],l=`${this.paths[o]}\
 ${this.lower[s.label]}`;o===0||i.has(n.alike[o])||!t.every(u=>l.includes(u))||t.some(u=>a.includes(u)||this.lower[s.label].includes(u)||u.includes("."))&&(i.add(
n.alike[o]),r[a.startsWith(t[0])||this.paths[o]===t[0]?0:1].push(F(o)))}),r}placesOf(t){let{model:n}=this,{nodes:r,sources:i}=n.data,s=Uint8Array.from(this.lower,
u=>Number(u.includes(t))),o=Uint8Array.from(i,(u,c)=>(this.lines[c].includes(t)||this.codes[c].includes(t)?8:0)|(s[u[4]]?16:0)),a=Uint8Array.from(n.entering,u=>s[u.
name]?32:0),l=new Uint8Array(n.count);for(let u=0;u<n.count;u++){let c=s[r.name[u]]|s[r.op[u]]<<1|s[r.spec[u]]<<2;r.source[u]>=0&&(c|=o[r.source[u]]);for(let h of r.
inputs[u])h>=n.count&&(c|=a[h-n.count]);l[u]=c}return l}filterOf(t){let n=/^([<>])=?([\d.]+)([a-z]*)$/.exec(t);if(n){let s=Ya[n[3]];if(s===void 0)return`“${t}\
”: the unit is B, KiB, MiB or GiB.`;let o=Number(n[2])*s,{written:a}=this.model.data.nodes;return n[1]===">"?l=>a[l]>o:l=>a[l]<o}let[,r,i]=/^(op|kind|is|side|module|line|shape|has):(.*)$/.
exec(t)??[];return r?i?this.keyed(r,i):`“${t}” needs something behind the colon.`:null}keyed(t,n){let{model:r}=this,{nodes:i,sources:s}=r.data,o=l=>`“${t}\
:${n}”: ${t} is one of ${l.join(", ")}.`;return{op:()=>{let l=n.endsWith("*")?n.slice(0,-1):null,u=r.strings.map((c,h)=>this.lower[h]);return c=>{let[h,p]=[r.
shorts[c].toLowerCase(),u[i.op[c]]];return l===null?h===n||p===n||p.endsWith(`.${n}`)||p.startsWith(`${n}.`):h.startsWith(l)||p.startsWith(l)}},kind:()=>{let l=[
...new Set(r.kinds)].sort();return l.includes(n)?u=>r.kinds[u]===n:o(l)},is:()=>{let l={saved:u=>r.isSaved(u),view:u=>r.isView(u),guard:u=>r.kinds[u]==="guard"};
if(r.data.marks)for(let u of bt)l[u]=c=>r.marks.get(c)?.kind===u;return Object.hasOwn(l,n)?l[n]:o(Object.keys(l))},side:()=>n==="forward"||n==="backward"?l=>r.isForward(
l)===(n==="forward"):o(["forward","backward"]),module:()=>{let l=h=>h===n||h.startsWith(`${n}.`)||h.includes(`.${n}.`)||h.endsWith(`.${n}`),u=r.strings.map((h,p)=>l(
this.lower[p])),c=this.paths.map(l);return h=>c[i.frame[h]]||i.source[h]>=0&&u[s[i.source[h]][4]]},line:()=>{let l=this.lines.map(u=>u===n||u.endsWith(`/${n}`)||
u.startsWith(`${n}:`)||u.includes(`/${n}:`));return u=>i.source[u]>=0&&l[i.source[u]]},shape:()=>{let l=`,${n.replace(/[^\w,*]/g,"")},`,u=r.strings.map(c=>/\[/.
test(c)&&`,${c.slice(c.indexOf("[")+1,c.lastIndexOf("]")).replace(/\s/g,"")},`.includes(l));return c=>u[i.spec[c]]},has:()=>r.data.stats?n==="nan"||n==="inf"?l=>(r.
bad.get(l)?.[n]??0)>0:o(["nan","inf"]):"This capture has no statistics of values, so has: finds nothing."}[t]()}};var hn=50,dn=class extends W{state={open:!1};input=at();componentDidMount(){this.props.mounted(this)}focus(){this.input.current.focus(),this.input.current.select()}pressed=t=>{
let{found:n,at:r,onGo:i,onLeave:s}=this.props,o=n?.units.length??0;if(t.stopPropagation(),t.key==="Escape")t.preventDefault(),this.setState({open:!1}),s();else if(o&&
(t.key==="Enter"||t.key==="ArrowDown"||t.key==="ArrowUp")){t.preventDefault();let a=t.key==="ArrowUp"||t.shiftKey;this.setState({open:t.key!=="Enter"}),i(r<0?a?
o-1:0:(r+(a?o-1:1))%o)}};render({query:t,found:n,model:r,at:i,onQuery:s,onGo:o}){return f("div",{class:"finder",role:"search",onFocusOut:a=>{a.currentTarget.contains(
a.relatedTarget)||this.setState({open:!1})},children:[f("input",{ref:this.input,type:"search",value:t,placeholder:"search: name, operator, shape, line   /","ari\
a-label":"search",spellcheck:!1,onInput:a=>{s(a.currentTarget.value),this.setState({open:!0})},onFocus:()=>this.setState({open:!0}),onKeyDown:this.pressed}),n&&
f("output",{class:"total",children:n.problem?"?":E(n.units.length)}),this.state.open&&f("div",{class:"results",tabIndex:-1,children:n?f(Ja,{found:n,model:r,at:i,
onGo:o,onQuery:a=>{s(a),this.focus()}}):f(Qa,{model:r,onQuery:a=>{s(a),this.focus()}})})]})}};function Qa({model:e,onQuery:t}){return f("div",{class:"help",children:[
f("p",{class:"soft",children:"Words are looked for in names and operators; where none has them, in shapes, source lines, modules and parameters, too. Filters ca\
n be put beside them:"}),f("dl",{children:rs(e).map(([n,r])=>[f("dt",{children:f("button",{class:"link",onClick:()=>t(n),children:n})},n),f("dd",{children:r},`${n}\
 `)])})]})}var is=e=>e.map(([t,n])=>`${t} ${E(n)}`).join(", ");function Ja({found:e,model:t,at:n,onGo:r,onQuery:i}){if(e.problem)return f("p",{class:"alarm",children:e.
problem});let s=e.steps.size-e.forward,o=e.units.length-e.steps.size,a=Math.max(0,Math.min(n-20,e.units.length-hn));return f("div",{children:[f("p",{class:"soft\
 counts",children:[[e.forward&&`${E(e.forward)} forward`,s&&`${E(s)} backward`,o&&Q(o,"frame")].filter(Boolean).join(", ")||"Nothing has these words.",e.counts.
length>0&&` · in ${is(e.counts)}`]}),e.elsewhere.steps>0&&f("p",{children:f("button",{class:"link elsewhere",onClick:()=>i(e.elsewhere.query),children:`${Q(e.elsewhere.
steps,"more step")}, not by name: in ${is(e.elsewhere.counts)}`})}),f("ul",{children:e.units.slice(a,a+hn).map((l,u)=>f(tl,{model:t,unit:l,chosen:a+u===n,onGo:()=>r(
a+u)},l))}),e.units.length>hn&&f("p",{class:"soft",children:`${E(a+1)} to ${E(Math.min(e.units.length,a+hn))} of ${E(e.units.length)}; Enter goes on`})]})}function tl({
model:e,unit:t,chosen:n,onGo:r}){let i=s=>{s.preventDefault(),r()};if(t<0){let s=-t-1;return f("li",{class:n?"chosen":"",onMouseDown:i,children:[f("b",{children:f(
"bdi",{children:e.path(s)})}),f("span",{class:"soft",children:f("bdi",{children:e.text(e.frame(s).label)})})]})}return f("li",{class:n?"chosen":"",onMouseDown:i,
children:[f("b",{class:e.isForward(t)?"forward":"backward",children:f("bdi",{children:e.nameOf(t)})}),f("code",{children:e.specOf(t)}),f("span",{class:"soft",children:f(
"bdi",{children:[e.moduleOf(t),e.lineOf(t)].filter(Boolean).join("  ")})})]})}var ss=[["/","search; Enter goes to the first, then to the next; Shift+Enter back; Escape leaves"],["↓ ↑","along the flow, as it is drawn: the forward runs \
down, the backward up"],["← →","to the partner in the other direction"],["Enter","open or close the selected frame, or the one around the selected step"],["\
Shift+Enter","open everything inside the selected frame"],["[ ]","previous or next turn of the loop around the selection"],["n p","next or previous match of the\
 search"],["1 – 9","open every frame to that depth; 0 closes all but the first"],["+ − f a","zoom in, zoom out, fit, fit all"],["m c l o i d","memory, code,\
 lines, operators, inputs and outputs, details"],["Escape","select nothing"],["wheel","move; with Ctrl or ⌘, zoom. Drag moves, too. On the time line: ← → move t\
he moment"]];function os(e){let t=[["n p","next or previous match of the search; without a search, next or previous change"],["h","changes"]];return e?ss.flatMap(
n=>n[0]==="n p"?t:[n]):ss}function vr(e,t,n,r){if(n===null)return as(t);let i=n<0||e.isForward(n),s=St(e,t,n),o=l=>l<e.count?St(e,t,l):s,a=i===(r===1);for(let l of el(
e,n,a)){let u=o(l),c=t.byUnit.get(u);if(u!==s&&c&&c.kind!=="open"&&!e.above(s).includes(-u-1))return u}return nl(t,s,r,i)}function el(e,t,n){let r=t>=0?[t]:[...e.
inside(-t-1)].filter(o=>e.isForward(o)),i=new Set(r);return r.flatMap(o=>n?e.usersOf(o):e.data.nodes.inputs[o]).filter(o=>o<e.count&&!i.has(o)).sort((o,a)=>n?o-
a:a-o)}function nl(e,t,n,r){let i=e.byUnit.get(t);if(!i)return as(e);let[s,o]=[t,1/0];for(let a of e.boxes){let l=(a.y-i.y)*n;if(a.kind==="open"||l<=0||a.kind===
"node"&&a.mid<0!==r)continue;let u=l+Math.abs(a.mid-i.mid)/20;u<o&&([s,o]=[a.unit,u])}return s}function as(e){return e.boxes.find(t=>t.kind!=="open")?.unit??null}
function wr(e,t,n){return t===null||t<0||e.isForward(t)!==n?t:(n?e.pulled[t]:e.data.nodes.partners[t])[0]??t}var Kt=64,ht=16,ls=11,pn=class extends W{state={wide:0};frame=at();watcher=new ResizeObserver(()=>this.setState({wide:this.frame.current.clientWidth}));shape=null;componentDidMount(){
this.watcher.observe(this.frame.current),this.setState({wide:this.frame.current.clientWidth})}componentWillUnmount(){this.watcher.disconnect()}shouldComponentUpdate(t,n){
let{model:r,moment:i,selected:s}=this.props;return t.model!==r||t.moment!==i||t.selected!==s||n.wide!==this.state.wide}get step(){return this.state.wide/Math.max(
1,this.props.model.count)}paths(){let{model:t}=this.props,{wide:n}=this.state;if(this.shape?.model===t&&this.shape.wide===n)return this.shape.paths;let{live:r}=t.
data.memory,i=Math.max(1,us(r)),s=Math.max(1,Math.floor(1/this.step/1.5)),o=(l,u)=>{if(l>=u)return"";let c=`M${(l*this.step).toFixed(1)} ${ht+Kt}`;for(let h=l;h<
u;h+=s){let p=Math.min(u,h+s),d=ht+Kt*(1-us(r,h,p)/i);c+=`L${(h*this.step).toFixed(1)} ${d.toFixed(1)}L${(p*this.step).toFixed(1)} ${d.toFixed(1)}`}return`${c}L${(u*
this.step).toFixed(1)} ${ht+Kt}Z`},a=[o(0,t.data.forward),o(t.data.forward,t.count)];return this.shape={model:t,wide:n,paths:a},a}chosen=t=>{let n=Math.floor((t.
clientX-this.frame.current.getBoundingClientRect().left)/this.step);this.props.onMoment(Math.max(0,Math.min(this.props.model.count-1,n)))};pressed=t=>{let{model:n,
moment:r,onMoment:i}=this.props,s={ArrowRight:1,ArrowLeft:-1,PageDown:10,PageUp:-10}[t.key],o=r??n.data.memory.peak[0],a=t.key==="Home"?0:t.key==="End"?n.count-
1:s===void 0?null:o+s*(t.shiftKey?10:1);a!==null&&(t.preventDefault(),t.stopPropagation(),i(Math.max(0,Math.min(n.count-1,a))))};render({model:t,moment:n,selected:r}){
let{wide:i}=this.state,{memory:s,forward:o}=t.data,[a,l]=s.peak,[u,c]=i&&t.count?this.paths():["",""],h=w=>(w+.5)*this.step,p=[`peak ${A(l)} + ${A(s.before)} he\
ld by the caller`,`peak ${A(l)}`],d=p.find(w=>z(w,ls)<i-24)??"",m=z(d,ls),y=h(a)+8,v=y+m<i-6?y:Math.max(4,Math.min(h(a)-8-m,i-m-6)),g=n===null?"":`, ${A(s.live[n])}\
 at step ${E(n+1)}`;return f("div",{class:"timeline",ref:this.frame,tabIndex:0,role:"slider","aria-label":"live bytes over forward and backward","aria-valuemin":0,
"aria-valuemax":Math.max(0,t.count-1),"aria-valuenow":n??Math.max(0,a),"aria-valuetext":`peak ${A(l)}${g}`,onClick:this.chosen,onMouseMove:w=>w.buttons===1&&this.
chosen(w),onKeyDown:this.pressed,children:f("svg",{width:i,height:ht+Kt+1,children:[f("path",{class:"area forward",d:u}),f("path",{class:"area backward",d:c}),o>
0&&o<t.count&&f("path",{class:"border",d:`M${o*this.step} ${ht}V${ht+Kt}`}),a>=0&&t.count>0&&f("circle",{class:"peak",cx:h(a),cy:ht,r:3.5}),a>=0&&t.count>0&&f("\
text",{class:"peak",x:v,y:11,children:d}),r!==null&&r>=0&&f("path",{class:"cursor selected",d:`M${h(r)} ${ht-4}V${ht+Kt}`}),n!==null&&f("path",{class:"cursor",d:`\
M${h(n)} ${ht-4}V${ht+Kt}`})]})})}};function us(e,t=0,n=e.length){let r=0;for(let i=t;i<n;i++)e[i]>r&&(r=e[i]);return r}function rl(e,t){return e.data.memory.spans.
filter(([,n,r])=>n<=t&&t<=r).sort((n,r)=>r[3]-n[3])}function cs({model:e,moment:t,go:n,onMoment:r}){let{memory:i}=e.data,[s,o]=i.peak,a=t??s;if(a<0||!e.count)return f(
"div",{class:"panel",children:[f("h2",{children:"Memory"}),f("p",{class:"soft",children:"There is no step, so nothing is live."})]});let l=rl(e,a),u=l.reduce((h,p)=>h+
p[3],0),c=[{name:"value",value:h=>e.nameOf(h[0]),cell:h=>f(yt,{model:e,value:h[0],go:n})},{name:"bytes",value:h=>h[3],cell:h=>A(h[3])},{name:"as",value:h=>e.text(
h[4]),cell:h=>e.text(h[4])},{name:"steps",value:h=>h[2]-h[1]+1,cell:h=>`${E(h[1]+1)}–${h[2]<e.count?E(h[2]+1):"end"}`}];return f("div",{class:"panel",children:[
f("h2",{children:"Memory"}),f("dl",{children:[f("dt",{children:"Step"}),f("dd",{children:[`${E(a+1)} of ${E(e.count)}: `,f(yt,{model:e,value:a,go:n})]}),f("dt",
{children:"Live"}),f("dd",{children:[`${A(i.live[a])} in ${E(l.length)} values`,Math.abs(u-i.live[a])>.5&&f("span",{class:"soft",children:` (${A(u)} listed belo\
w)`})]}),f("dt",{children:"Peak"}),f("dd",{children:[`${A(o)} at `,f("button",{class:"link",onClick:()=>r(s),children:`step ${E(s+1)}`})]}),f("dt",{children:"Be\
fore"}),f("dd",{children:`${A(i.before)} of parameters, buffers and inputs, held by the caller`})]}),f(ft,{columns:c,rows:l,sort:[1,-1],empty:"Nothing is held a\
t this step."},a),f("h3",{children:"Held by the caller throughout"}),f(ft,{columns:c.slice(0,3),rows:i.held,sort:[1,-1],empty:"Nothing."})]})}var _r="http://www.w3.org/1999/xhtml",fs={svg:"http://www.w3.org/2000/svg",xhtml:_r,xlink:"http://www.w3.org/1999/xlink",xml:"http://www.w3.org/XML/1998/namespa\
ce",xmlns:"http://www.w3.org/2000/xmlns/"};function Ee(e){var t=e+="",n=t.indexOf(":");return n>=0&&(t=e.slice(0,n))!=="xmlns"&&(e=e.slice(n+1)),fs.hasOwnProperty(
t)?{space:fs[t],local:e}:e}function il(e){return function(){var t=this.ownerDocument,n=this.namespaceURI;return n===_r&&t.documentElement.namespaceURI===_r?t.createElement(
e):t.createElementNS(n,e)}}function sl(e){return function(){return this.ownerDocument.createElementNS(e.space,e.local)}}function hs(e){var t=Ee(e);return(t.local?
sl:il)(t)}function ol(){}function gn(e){return e==null?ol:function(){return this.querySelector(e)}}function al(e){typeof e!="function"&&(e=gn(e));for(var t=this.
_groups,n=t.length,r=new Array(n),i=0;i<n;++i)for(var s=t[i],o=s.length,a=r[i]=new Array(o),l,u,c=0;c<o;++c)(l=s[c])&&(u=e.call(l,l.__data__,c,s))&&("__data__"in
l&&(u.__data__=l.__data__),a[c]=u);return new nt(r,this._parents)}function ll(e){return e==null?[]:Array.isArray(e)?e:Array.from(e)}function ul(){return[]}function kr(e){
return e==null?ul:function(){return this.querySelectorAll(e)}}function cl(e){return function(){return ll(e.apply(this,arguments))}}function fl(e){typeof e=="fun\
ction"?e=cl(e):e=kr(e);for(var t=this._groups,n=t.length,r=[],i=[],s=0;s<n;++s)for(var o=t[s],a=o.length,l,u=0;u<a;++u)(l=o[u])&&(r.push(e.call(l,l.__data__,u,o)),
i.push(l));return new nt(r,i)}function $r(e){return function(){return this.matches(e)}}function ds(e){return function(t){return t.matches(e)}}var hl=Array.prototype.
find;function dl(e){return function(){return hl.call(this.children,e)}}function pl(){return this.firstElementChild}function ml(e){return this.select(e==null?pl:
dl(typeof e=="function"?e:ds(e)))}var gl=Array.prototype.filter;function bl(){return Array.from(this.children)}function yl(e){return function(){return gl.call(this.
children,e)}}function vl(e){return this.selectAll(e==null?bl:yl(typeof e=="function"?e:ds(e)))}function wl(e){typeof e!="function"&&(e=$r(e));for(var t=this._groups,
n=t.length,r=new Array(n),i=0;i<n;++i)for(var s=t[i],o=s.length,a=r[i]=[],l,u=0;u<o;++u)(l=s[u])&&e.call(l,l.__data__,u,s)&&a.push(l);return new nt(r,this._parents)}
function ps(e){return new Array(e.length)}function _l(){return new nt(this._enter||this._groups.map(ps),this._parents)}function mn(e,t){this.ownerDocument=e.ownerDocument,
this.namespaceURI=e.namespaceURI,this._next=null,this._parent=e,this.__data__=t}mn.prototype={constructor:mn,appendChild:function(e){return this._parent.insertBefore(
e,this._next)},insertBefore:function(e,t){return this._parent.insertBefore(e,t)},querySelector:function(e){return this._parent.querySelector(e)},querySelectorAll:function(e){
return this._parent.querySelectorAll(e)}};function xl(e){return function(){return e}}function kl(e,t,n,r,i,s){for(var o=0,a,l=t.length,u=s.length;o<u;++o)(a=t[o])?
(a.__data__=s[o],r[o]=a):n[o]=new mn(e,s[o]);for(;o<l;++o)(a=t[o])&&(i[o]=a)}function $l(e,t,n,r,i,s,o){var a,l,u=new Map,c=t.length,h=s.length,p=new Array(c),d;
for(a=0;a<c;++a)(l=t[a])&&(p[a]=d=o.call(l,l.__data__,a,t)+"",u.has(d)?i[a]=l:u.set(d,l));for(a=0;a<h;++a)d=o.call(e,s[a],a,s)+"",(l=u.get(d))?(r[a]=l,l.__data__=
s[a],u.delete(d)):n[a]=new mn(e,s[a]);for(a=0;a<c;++a)(l=t[a])&&u.get(p[a])===l&&(i[a]=l)}function Ml(e){return e.__data__}function Sl(e,t){if(!arguments.length)
return Array.from(this,Ml);var n=t?$l:kl,r=this._parents,i=this._groups;typeof e!="function"&&(e=xl(e));for(var s=i.length,o=new Array(s),a=new Array(s),l=new Array(
s),u=0;u<s;++u){var c=r[u],h=i[u],p=h.length,d=El(e.call(c,c&&c.__data__,u,r)),m=d.length,y=a[u]=new Array(m),v=o[u]=new Array(m),g=l[u]=new Array(p);n(c,h,y,v,
g,d,t);for(var w=0,x=0,$,P;w<m;++w)if($=y[w]){for(w>=x&&(x=w+1);!(P=v[x])&&++x<m;);$._next=P||null}}return o=new nt(o,r),o._enter=a,o._exit=l,o}function El(e){return typeof e==
"object"&&"length"in e?e:Array.from(e)}function Ol(){return new nt(this._exit||this._groups.map(ps),this._parents)}function Nl(e,t,n){var r=this.enter(),i=this,
s=this.exit();return typeof e=="function"?(r=e(r),r&&(r=r.selection())):r=r.append(e+""),t!=null&&(i=t(i),i&&(i=i.selection())),n==null?s.remove():n(s),r&&i?r.merge(
i).order():i}function Cl(e){for(var t=e.selection?e.selection():e,n=this._groups,r=t._groups,i=n.length,s=r.length,o=Math.min(i,s),a=new Array(i),l=0;l<o;++l)for(var u=n[l],
c=r[l],h=u.length,p=a[l]=new Array(h),d,m=0;m<h;++m)(d=u[m]||c[m])&&(p[m]=d);for(;l<i;++l)a[l]=n[l];return new nt(a,this._parents)}function Al(){for(var e=this.
_groups,t=-1,n=e.length;++t<n;)for(var r=e[t],i=r.length-1,s=r[i],o;--i>=0;)(o=r[i])&&(s&&o.compareDocumentPosition(s)^4&&s.parentNode.insertBefore(o,s),s=o);return this}
function Pl(e){e||(e=Tl);function t(h,p){return h&&p?e(h.__data__,p.__data__):!h-!p}for(var n=this._groups,r=n.length,i=new Array(r),s=0;s<r;++s){for(var o=n[s],
a=o.length,l=i[s]=new Array(a),u,c=0;c<a;++c)(u=o[c])&&(l[c]=u);l.sort(t)}return new nt(i,this._parents).order()}function Tl(e,t){return e<t?-1:e>t?1:e>=t?0:NaN}
function Ll(){var e=arguments[0];return arguments[0]=this,e.apply(null,arguments),this}function Il(){return Array.from(this)}function Ul(){for(var e=this._groups,
t=0,n=e.length;t<n;++t)for(var r=e[t],i=0,s=r.length;i<s;++i){var o=r[i];if(o)return o}return null}function Dl(){let e=0;for(let t of this)++e;return e}function Bl(){
return!this.node()}function zl(e){for(var t=this._groups,n=0,r=t.length;n<r;++n)for(var i=t[n],s=0,o=i.length,a;s<o;++s)(a=i[s])&&e.call(a,a.__data__,s,i);return this}
function Fl(e){return function(){this.removeAttribute(e)}}function Rl(e){return function(){this.removeAttributeNS(e.space,e.local)}}function Vl(e,t){return function(){
this.setAttribute(e,t)}}function Gl(e,t){return function(){this.setAttributeNS(e.space,e.local,t)}}function Wl(e,t){return function(){var n=t.apply(this,arguments);
n==null?this.removeAttribute(e):this.setAttribute(e,n)}}function Hl(e,t){return function(){var n=t.apply(this,arguments);n==null?this.removeAttributeNS(e.space,
e.local):this.setAttributeNS(e.space,e.local,n)}}function ql(e,t){var n=Ee(e);if(arguments.length<2){var r=this.node();return n.local?r.getAttributeNS(n.space,n.
local):r.getAttribute(n)}return this.each((t==null?n.local?Rl:Fl:typeof t=="function"?n.local?Hl:Wl:n.local?Gl:Vl)(n,t))}function ms(e){return e.ownerDocument&&
e.ownerDocument.defaultView||e.document&&e||e.defaultView}function Kl(e){return function(){this.style.removeProperty(e)}}function Xl(e,t,n){return function(){this.
style.setProperty(e,t,n)}}function Yl(e,t,n){return function(){var r=t.apply(this,arguments);r==null?this.style.removeProperty(e):this.style.setProperty(e,r,n)}}
function Zl(e,t,n){return arguments.length>1?this.each((t==null?Kl:typeof t=="function"?Yl:Xl)(e,t,n??"")):Xt(this.node(),e)}function Xt(e,t){return e.style.getPropertyValue(
t)||ms(e).getComputedStyle(e,null).getPropertyValue(t)}function jl(e){return function(){delete this[e]}}function Ql(e,t){return function(){this[e]=t}}function Jl(e,t){
return function(){var n=t.apply(this,arguments);n==null?delete this[e]:this[e]=n}}function tu(e,t){return arguments.length>1?this.each((t==null?jl:typeof t=="fu\
nction"?Jl:Ql)(e,t)):this.node()[e]}function gs(e){return e.trim().split(/^|\s+/)}function Mr(e){return e.classList||new bs(e)}function bs(e){this._node=e,this.
_names=gs(e.getAttribute("class")||"")}bs.prototype={add:function(e){var t=this._names.indexOf(e);t<0&&(this._names.push(e),this._node.setAttribute("class",this.
_names.join(" ")))},remove:function(e){var t=this._names.indexOf(e);t>=0&&(this._names.splice(t,1),this._node.setAttribute("class",this._names.join(" ")))},contains:function(e){
return this._names.indexOf(e)>=0}};function ys(e,t){for(var n=Mr(e),r=-1,i=t.length;++r<i;)n.add(t[r])}function vs(e,t){for(var n=Mr(e),r=-1,i=t.length;++r<i;)n.
remove(t[r])}function eu(e){return function(){ys(this,e)}}function nu(e){return function(){vs(this,e)}}function ru(e,t){return function(){(t.apply(this,arguments)?
ys:vs)(this,e)}}function iu(e,t){var n=gs(e+"");if(arguments.length<2){for(var r=Mr(this.node()),i=-1,s=n.length;++i<s;)if(!r.contains(n[i]))return!1;return!0}return this.
each((typeof t=="function"?ru:t?eu:nu)(n,t))}function su(){this.textContent=""}function ou(e){return function(){this.textContent=e}}function au(e){return function(){
var t=e.apply(this,arguments);this.textContent=t??""}}function lu(e){return arguments.length?this.each(e==null?su:(typeof e=="function"?au:ou)(e)):this.node().textContent}
function uu(){this.innerHTML=""}function cu(e){return function(){this.innerHTML=e}}function fu(e){return function(){var t=e.apply(this,arguments);this.innerHTML=
t??""}}function hu(e){return arguments.length?this.each(e==null?uu:(typeof e=="function"?fu:cu)(e)):this.node().innerHTML}function du(){this.nextSibling&&this.parentNode.
appendChild(this)}function pu(){return this.each(du)}function mu(){this.previousSibling&&this.parentNode.insertBefore(this,this.parentNode.firstChild)}function gu(){
return this.each(mu)}function bu(e){var t=typeof e=="function"?e:hs(e);return this.select(function(){return this.appendChild(t.apply(this,arguments))})}function yu(){
return null}function vu(e,t){var n=typeof e=="function"?e:hs(e),r=t==null?yu:typeof t=="function"?t:gn(t);return this.select(function(){return this.insertBefore(
n.apply(this,arguments),r.apply(this,arguments)||null)})}function wu(){var e=this.parentNode;e&&e.removeChild(this)}function _u(){return this.each(wu)}function xu(){
var e=this.cloneNode(!1),t=this.parentNode;return t?t.insertBefore(e,this.nextSibling):e}function ku(){var e=this.cloneNode(!0),t=this.parentNode;return t?t.insertBefore(
e,this.nextSibling):e}function $u(e){return this.select(e?ku:xu)}function Mu(e){return arguments.length?this.property("__data__",e):this.node().__data__}function Su(e){
return function(t){e.call(this,t,this.__data__)}}function Eu(e){return e.trim().split(/^|\s+/).map(function(t){var n="",r=t.indexOf(".");return r>=0&&(n=t.slice(
r+1),t=t.slice(0,r)),{type:t,name:n}})}function Ou(e){return function(){var t=this.__on;if(t){for(var n=0,r=-1,i=t.length,s;n<i;++n)s=t[n],(!e.type||s.type===e.
type)&&s.name===e.name?this.removeEventListener(s.type,s.listener,s.options):t[++r]=s;++r?t.length=r:delete this.__on}}}function Nu(e,t,n){return function(){var r=this.
__on,i,s=Su(t);if(r){for(var o=0,a=r.length;o<a;++o)if((i=r[o]).type===e.type&&i.name===e.name){this.removeEventListener(i.type,i.listener,i.options),this.addEventListener(
i.type,i.listener=s,i.options=n),i.value=t;return}}this.addEventListener(e.type,s,n),i={type:e.type,name:e.name,value:t,listener:s,options:n},r?r.push(i):this.__on=
[i]}}function Cu(e,t,n){var r=Eu(e+""),i,s=r.length,o;if(arguments.length<2){var a=this.node().__on;if(a){for(var l=0,u=a.length,c;l<u;++l)for(i=0,c=a[l];i<s;++i)
if((o=r[i]).type===c.type&&o.name===c.name)return c.value}return}for(a=t?Nu:Ou,i=0;i<s;++i)this.each(a(r[i],t,n));return this}function ws(e,t,n){var r=ms(e),i=r.
CustomEvent;typeof i=="function"?i=new i(t,n):(i=r.document.createEvent("Event"),n?(i.initEvent(t,n.bubbles,n.cancelable),i.detail=n.detail):i.initEvent(t,!1,!1)),
e.dispatchEvent(i)}function Au(e,t){return function(){return ws(this,e,t)}}function Pu(e,t){return function(){return ws(this,e,t.apply(this,arguments))}}function Tu(e,t){
return this.each((typeof t=="function"?Pu:Au)(e,t))}function*Lu(){for(var e=this._groups,t=0,n=e.length;t<n;++t)for(var r=e[t],i=0,s=r.length,o;i<s;++i)(o=r[i])&&
(yield o)}var _s=[null];function nt(e,t){this._groups=e,this._parents=t}function Yt(){return new nt([[document.documentElement]],_s)}function Iu(){return this}nt.
prototype=Yt.prototype={constructor:nt,select:al,selectAll:fl,selectChild:ml,selectChildren:vl,filter:wl,data:Sl,enter:_l,exit:Ol,join:Nl,merge:Cl,selection:Iu,
order:Al,sort:Pl,call:Ll,nodes:Il,node:Ul,size:Dl,empty:Bl,each:zl,attr:ql,style:Zl,property:tu,classed:iu,text:lu,html:hu,raise:pu,lower:gu,append:bu,insert:vu,
remove:_u,clone:$u,datum:Mu,on:Cu,dispatch:Tu,[Symbol.iterator]:Lu};function Y(e){return typeof e=="string"?new nt([[document.querySelector(e)]],[document.documentElement]):
new nt([[e]],_s)}var Uu=0;function Du(){return new xr}function xr(){this._="@"+(++Uu).toString(36)}xr.prototype=Du.prototype={constructor:xr,get:function(e){for(var t=this._;!(t in
e);)if(!(e=e.parentNode))return;return e[t]},set:function(e,t){return e[this._]=t},remove:function(e){return this._ in e&&delete e[this._]},toString:function(){
return this._}};function Bu(e){let t;for(;t=e.sourceEvent;)e=t;return e}function Ot(e,t){if(e=Bu(e),t===void 0&&(t=e.currentTarget),t){var n=t.ownerSVGElement||
t;if(n.createSVGPoint){var r=n.createSVGPoint();return r.x=e.clientX,r.y=e.clientY,r=r.matrixTransform(t.getScreenCTM().inverse()),[r.x,r.y]}if(t.getBoundingClientRect){
var i=t.getBoundingClientRect();return[e.clientX-i.left-t.clientLeft,e.clientY-i.top-t.clientTop]}}return[e.pageX,e.pageY]}var zu={value:()=>{}};function Oe(){for(var e=0,t=arguments.length,n={},r;e<t;++e){if(!(r=arguments[e]+"")||r in n||/[\s.]/.test(r))throw new Error("illegal typ\
e: "+r);n[r]=[]}return new bn(n)}function bn(e){this._=e}function Fu(e,t){return e.trim().split(/^|\s+/).map(function(n){var r="",i=n.indexOf(".");if(i>=0&&(r=n.
slice(i+1),n=n.slice(0,i)),n&&!t.hasOwnProperty(n))throw new Error("unknown type: "+n);return{type:n,name:r}})}bn.prototype=Oe.prototype={constructor:bn,on:function(e,t){
var n=this._,r=Fu(e+"",n),i,s=-1,o=r.length;if(arguments.length<2){for(;++s<o;)if((i=(e=r[s]).type)&&(i=Ru(n[i],e.name)))return i;return}if(t!=null&&typeof t!="\
function")throw new Error("invalid callback: "+t);for(;++s<o;)if(i=(e=r[s]).type)n[i]=xs(n[i],e.name,t);else if(t==null)for(i in n)n[i]=xs(n[i],e.name,null);return this},
copy:function(){var e={},t=this._;for(var n in t)e[n]=t[n].slice();return new bn(e)},call:function(e,t){if((i=arguments.length-2)>0)for(var n=new Array(i),r=0,i,
s;r<i;++r)n[r]=arguments[r+2];if(!this._.hasOwnProperty(e))throw new Error("unknown type: "+e);for(s=this._[e],r=0,i=s.length;r<i;++r)s[r].value.apply(t,n)},apply:function(e,t,n){
if(!this._.hasOwnProperty(e))throw new Error("unknown type: "+e);for(var r=this._[e],i=0,s=r.length;i<s;++i)r[i].value.apply(t,n)}};function Ru(e,t){for(var n=0,
r=e.length,i;n<r;++n)if((i=e[n]).name===t)return i.value}function xs(e,t,n){for(var r=0,i=e.length;r<i;++r)if(e[r].name===t){e[r]=zu,e=e.slice(0,r).concat(e.slice(
r+1));break}return n!=null&&e.push({name:t,value:n}),e}var Sr={capture:!0,passive:!1};function Er(e){e.preventDefault(),e.stopImmediatePropagation()}function ks(e){var t=e.document.documentElement,n=Y(e).on("dragstart.drag",Er,Sr);"onselectstart"in
t?n.on("selectstart.drag",Er,Sr):(t.__noselect=t.style.MozUserSelect,t.style.MozUserSelect="none")}function $s(e,t){var n=e.document.documentElement,r=Y(e).on("\
dragstart.drag",null);t&&(r.on("click.drag",Er,Sr),setTimeout(function(){r.on("click.drag",null)},0)),"onselectstart"in n?r.on("selectstart.drag",null):(n.style.
MozUserSelect=n.__noselect,delete n.__noselect)}function Vu(e,{sourceEvent:t,subject:n,target:r,identifier:i,active:s,x:o,y:a,dx:l,dy:u,dispatch:c}){Object.defineProperties(this,{type:{value:e,enumerable:!0,configurable:!0},
sourceEvent:{value:t,enumerable:!0,configurable:!0},subject:{value:n,enumerable:!0,configurable:!0},target:{value:r,enumerable:!0,configurable:!0},identifier:{value:i,
enumerable:!0,configurable:!0},active:{value:s,enumerable:!0,configurable:!0},x:{value:o,enumerable:!0,configurable:!0},y:{value:a,enumerable:!0,configurable:!0},
dx:{value:l,enumerable:!0,configurable:!0},dy:{value:u,enumerable:!0,configurable:!0},_:{value:c}})}Vu.prototype.on=function(){var e=this._.on.apply(this._,arguments);
return e===this._?this:e};function me(e,t,n){e.prototype=t.prototype=n,n.constructor=e}function Ae(e,t){var n=Object.create(e.prototype);for(var r in t)n[r]=t[r];return n}function zt(){}
var Jt=.7,pe=1/Jt,he="\\s*([+-]?\\d+)\\s*",Ne="\\s*([+-]?(?:\\d*\\.)?\\d+(?:[eE][+-]?\\d+)?)\\s*",vt="\\s*([+-]?(?:\\d*\\.)?\\d+(?:[eE][+-]?\\d+)?)%\\s*",Gu=/^#([0-9a-f]{3,8})$/,
Wu=new RegExp(`^rgb\\(${he},${he},${he}\\)$`),Hu=new RegExp(`^rgb\\(${vt},${vt},${vt}\\)$`),qu=new RegExp(`^rgba\\(${he},${he},${he},${Ne}\\)$`),Ku=new RegExp(`\
^rgba\\(${vt},${vt},${vt},${Ne}\\)$`),Xu=new RegExp(`^hsl\\(${Ne},${vt},${vt}\\)$`),Yu=new RegExp(`^hsla\\(${Ne},${vt},${vt},${Ne}\\)$`),Ms={aliceblue:15792383,
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
me(zt,te,{copy(e){return Object.assign(new this.constructor,this,e)},displayable(){return this.rgb().displayable()},hex:Ss,formatHex:Ss,formatHex8:Zu,formatHsl:ju,
formatRgb:Es,toString:Es});function Ss(){return this.rgb().formatHex()}function Zu(){return this.rgb().formatHex8()}function ju(){return Us(this).formatHsl()}function Es(){
return this.rgb().formatRgb()}function te(e){var t,n;return e=(e+"").trim().toLowerCase(),(t=Gu.exec(e))?(n=t[1].length,t=parseInt(t[1],16),n===6?Os(t):n===3?new H(
t>>8&15|t>>4&240,t>>4&15|t&240,(t&15)<<4|t&15,1):n===8?yn(t>>24&255,t>>16&255,t>>8&255,(t&255)/255):n===4?yn(t>>12&15|t>>8&240,t>>8&15|t>>4&240,t>>4&15|t&240,((t&
15)<<4|t&15)/255):null):(t=Wu.exec(e))?new H(t[1],t[2],t[3],1):(t=Hu.exec(e))?new H(t[1]*255/100,t[2]*255/100,t[3]*255/100,1):(t=qu.exec(e))?yn(t[1],t[2],t[3],t[4]):
(t=Ku.exec(e))?yn(t[1]*255/100,t[2]*255/100,t[3]*255/100,t[4]):(t=Xu.exec(e))?As(t[1],t[2]/100,t[3]/100,1):(t=Yu.exec(e))?As(t[1],t[2]/100,t[3]/100,t[4]):Ms.hasOwnProperty(
e)?Os(Ms[e]):e==="transparent"?new H(NaN,NaN,NaN,0):null}function Os(e){return new H(e>>16&255,e>>8&255,e&255,1)}function yn(e,t,n,r){return r<=0&&(e=t=n=NaN),new H(
e,t,n,r)}function Tr(e){return e instanceof zt||(e=te(e)),e?(e=e.rgb(),new H(e.r,e.g,e.b,e.opacity)):new H}function Pe(e,t,n,r){return arguments.length===1?Tr(e):
new H(e,t,n,r??1)}function H(e,t,n,r){this.r=+e,this.g=+t,this.b=+n,this.opacity=+r}me(H,Pe,Ae(zt,{brighter(e){return e=e==null?pe:Math.pow(pe,e),new H(this.r*e,
this.g*e,this.b*e,this.opacity)},darker(e){return e=e==null?Jt:Math.pow(Jt,e),new H(this.r*e,this.g*e,this.b*e,this.opacity)},rgb(){return this},clamp(){return new H(
jt(this.r),jt(this.g),jt(this.b),wn(this.opacity))},displayable(){return-.5<=this.r&&this.r<255.5&&-.5<=this.g&&this.g<255.5&&-.5<=this.b&&this.b<255.5&&0<=this.
opacity&&this.opacity<=1},hex:Ns,formatHex:Ns,formatHex8:Qu,formatRgb:Cs,toString:Cs}));function Ns(){return`#${Zt(this.r)}${Zt(this.g)}${Zt(this.b)}`}function Qu(){
return`#${Zt(this.r)}${Zt(this.g)}${Zt(this.b)}${Zt((isNaN(this.opacity)?1:this.opacity)*255)}`}function Cs(){let e=wn(this.opacity);return`${e===1?"rgb(":"rgba\
("}${jt(this.r)}, ${jt(this.g)}, ${jt(this.b)}${e===1?")":`, ${e})`}`}function wn(e){return isNaN(e)?1:Math.max(0,Math.min(1,e))}function jt(e){return Math.max(
0,Math.min(255,Math.round(e)||0))}function Zt(e){return e=jt(e),(e<16?"0":"")+e.toString(16)}function As(e,t,n,r){return r<=0?e=t=n=NaN:n<=0||n>=1?e=t=NaN:t<=0&&
(e=NaN),new dt(e,t,n,r)}function Us(e){if(e instanceof dt)return new dt(e.h,e.s,e.l,e.opacity);if(e instanceof zt||(e=te(e)),!e)return new dt;if(e instanceof dt)
return e;e=e.rgb();var t=e.r/255,n=e.g/255,r=e.b/255,i=Math.min(t,n,r),s=Math.max(t,n,r),o=NaN,a=s-i,l=(s+i)/2;return a?(t===s?o=(n-r)/a+(n<r)*6:n===s?o=(r-t)/a+
2:o=(t-n)/a+4,a/=l<.5?s+i:2-s-i,o*=60):a=l>0&&l<1?0:o,new dt(o,a,l,e.opacity)}function xn(e,t,n,r){return arguments.length===1?Us(e):new dt(e,t,n,r??1)}function dt(e,t,n,r){
this.h=+e,this.s=+t,this.l=+n,this.opacity=+r}me(dt,xn,Ae(zt,{brighter(e){return e=e==null?pe:Math.pow(pe,e),new dt(this.h,this.s,this.l*e,this.opacity)},darker(e){
return e=e==null?Jt:Math.pow(Jt,e),new dt(this.h,this.s,this.l*e,this.opacity)},rgb(){var e=this.h%360+(this.h<0)*360,t=isNaN(e)||isNaN(this.s)?0:this.s,n=this.
l,r=n+(n<.5?n:1-n)*t,i=2*n-r;return new H(Or(e>=240?e-240:e+120,i,r),Or(e,i,r),Or(e<120?e+240:e-120,i,r),this.opacity)},clamp(){return new dt(Ps(this.h),vn(this.
s),vn(this.l),wn(this.opacity))},displayable(){return(0<=this.s&&this.s<=1||isNaN(this.s))&&0<=this.l&&this.l<=1&&0<=this.opacity&&this.opacity<=1},formatHsl(){
let e=wn(this.opacity);return`${e===1?"hsl(":"hsla("}${Ps(this.h)}, ${vn(this.s)*100}%, ${vn(this.l)*100}%${e===1?")":`, ${e})`}`}}));function Ps(e){return e=(e||
0)%360,e<0?e+360:e}function vn(e){return Math.max(0,Math.min(1,e||0))}function Or(e,t,n){return(e<60?t+(n-t)*e/60:e<180?n:e<240?t+(n-t)*(240-e)/60:t)*255}var Ds=Math.
PI/180,Bs=180/Math.PI,_n=18,zs=.96422,Fs=1,Rs=.82521,Vs=4/29,de=6/29,Gs=3*de*de,Ju=de*de*de;function Ws(e){if(e instanceof wt)return new wt(e.l,e.a,e.b,e.opacity);
if(e instanceof Nt)return qs(e);e instanceof H||(e=Tr(e));var t=Pr(e.r),n=Pr(e.g),r=Pr(e.b),i=Nr((.2225045*t+.7168786*n+.0606169*r)/Fs),s,o;return t===n&&n===r?
s=o=i:(s=Nr((.4360747*t+.3850649*n+.1430804*r)/zs),o=Nr((.0139322*t+.0971045*n+.7141733*r)/Rs)),new wt(116*i-16,500*(s-i),200*(i-o),e.opacity)}function Hs(e,t,n,r){return arguments.length===1?Ws(e):new wt(e,t,n,r??1)}function wt(e,t,n,r){this.l=+e,this.a=+t,this.b=+n,this.opacity=+r}me(wt,Hs,Ae(zt,{brighter(e){
return new wt(this.l+_n*(e??1),this.a,this.b,this.opacity)},darker(e){return new wt(this.l-_n*(e??1),this.a,this.b,this.opacity)},rgb(){var e=(this.l+16)/116,t=isNaN(
this.a)?e:e+this.a/500,n=isNaN(this.b)?e:e-this.b/200;return t=zs*Cr(t),e=Fs*Cr(e),n=Rs*Cr(n),new H(Ar(3.1338561*t-1.6168667*e-.4906146*n),Ar(-.9787684*t+1.9161415*
e+.033454*n),Ar(.0719453*t-.2289914*e+1.4052427*n),this.opacity)}}));function Nr(e){return e>Ju?Math.pow(e,1/3):e/Gs+Vs}function Cr(e){return e>de?e*e*e:Gs*(e-Vs)}
function Ar(e){return 255*(e<=.0031308?12.92*e:1.055*Math.pow(e,1/2.4)-.055)}function Pr(e){return(e/=255)<=.04045?e/12.92:Math.pow((e+.055)/1.055,2.4)}function tc(e){
if(e instanceof Nt)return new Nt(e.h,e.c,e.l,e.opacity);if(e instanceof wt||(e=Ws(e)),e.a===0&&e.b===0)return new Nt(NaN,0<e.l&&e.l<100?0:NaN,e.l,e.opacity);var t=Math.
atan2(e.b,e.a)*Bs;return new Nt(t<0?t+360:t,Math.sqrt(e.a*e.a+e.b*e.b),e.l,e.opacity)}function kn(e,t,n,r){return arguments.length===1?tc(e):new Nt(e,t,n,r??1)}function Nt(e,t,n,r){this.h=+e,this.c=+t,this.l=+n,this.opacity=+r}function qs(e){if(isNaN(
e.h))return new wt(e.l,0,0,e.opacity);var t=e.h*Ds;return new wt(e.l,Math.cos(t)*e.c,Math.sin(t)*e.c,e.opacity)}me(Nt,kn,Ae(zt,{brighter(e){return new Nt(this.h,
this.c,this.l+_n*(e??1),this.opacity)},darker(e){return new Nt(this.h,this.c,this.l-_n*(e??1),this.opacity)},rgb(){return qs(this).rgb()}}));var Ks=-.14861,Lr=1.78277,
Ir=-.29227,$n=-.90649,Ce=1.97294,Ts=Ce*$n,Ls=Ce*Lr,Is=Lr*Ir-$n*Ks;function ec(e){if(e instanceof Qt)return new Qt(e.h,e.s,e.l,e.opacity);e instanceof H||(e=Tr(e));
var t=e.r/255,n=e.g/255,r=e.b/255,i=(Is*r+Ts*t-Ls*n)/(Is+Ts-Ls),s=r-i,o=(Ce*(n-i)-Ir*s)/$n,a=Math.sqrt(o*o+s*s)/(Ce*i*(1-i)),l=a?Math.atan2(o,s)*Bs-120:NaN;return new Qt(
l<0?l+360:l,a,i,e.opacity)}function Mn(e,t,n,r){return arguments.length===1?ec(e):new Qt(e,t,n,r??1)}function Qt(e,t,n,r){this.h=+e,this.s=+t,this.l=+n,this.opacity=
+r}me(Qt,Mn,Ae(zt,{brighter(e){return e=e==null?pe:Math.pow(pe,e),new Qt(this.h,this.s,this.l*e,this.opacity)},darker(e){return e=e==null?Jt:Math.pow(Jt,e),new Qt(
this.h,this.s,this.l*e,this.opacity)},rgb(){var e=isNaN(this.h)?0:(this.h+120)*Ds,t=+this.l,n=isNaN(this.s)?0:this.s*t*(1-t),r=Math.cos(e),i=Math.sin(e);return new H(
255*(t+n*(Ks*r+Lr*i)),255*(t+n*(Ir*r+$n*i)),255*(t+n*(Ce*r)),this.opacity)}}));function Zs(e,t,n,r,i){var s=e*e,o=s*e;return((1-3*e+3*s-o)*t+(4-6*s+3*o)*n+(1+3*e+3*s-3*o)*r+o*i)/6}function nc(e){var t=e.length-1;return function(n){var r=n<=
0?n=0:n>=1?(n=1,t-1):Math.floor(n*t),i=e[r],s=e[r+1],o=r>0?e[r-1]:2*i-s,a=r<t-1?e[r+2]:2*s-i;return Zs((n-r/t)*t,o,i,s,a)}}function rc(e){var t=e.length;return function(n){
var r=Math.floor(((n%=1)<0?++n:n)*t),i=e[(r+t-1)%t],s=e[r%t],o=e[(r+1)%t],a=e[(r+2)%t];return Zs((n-r/t)*t,i,s,o,a)}}var zr=e=>()=>e;function js(e,t){return function(n){
return e+n*t}}function ic(e,t,n){return e=Math.pow(e,n),t=Math.pow(t,n)-e,n=1/n,function(r){return Math.pow(e+r*t,n)}}function Fr(e,t){var n=t-e;return n?js(e,n>
180||n<-180?n-360*Math.round(n/360):n):zr(isNaN(e)?t:e)}function sc(e){return(e=+e)==1?tt:function(t,n){return n-t?ic(t,n,e):zr(isNaN(t)?n:t)}}function tt(e,t){
var n=t-e;return n?js(e,n):zr(isNaN(e)?t:e)}var Rr=(function e(t){var n=sc(t);function r(i,s){var o=n((i=Pe(i)).r,(s=Pe(s)).r),a=n(i.g,s.g),l=n(i.b,s.b),u=tt(i.
opacity,s.opacity);return function(c){return i.r=o(c),i.g=a(c),i.b=l(c),i.opacity=u(c),i+""}}return r.gamma=e,r})(1);function Qs(e){return function(t){var n=t.length,
r=new Array(n),i=new Array(n),s=new Array(n),o,a;for(o=0;o<n;++o)a=Pe(t[o]),r[o]=a.r||0,i[o]=a.g||0,s[o]=a.b||0;return r=e(r),i=e(i),s=e(s),a.opacity=1,function(l){
return a.r=r(l),a.g=i(l),a.b=s(l),a+""}}}var rd=Qs(nc),id=Qs(rc);function Ct(e,t){return e=+e,t=+t,function(n){return e*(1-n)+t*n}}var Dr=/[-+]?(?:\d+\.?\d*|\.?\d+)(?:[eE][-+]?\d+)?/g,Ur=new RegExp(Dr.source,"g");function oc(e){return function(){return e}}function ac(e){return function(t){return e(
t)+""}}function Js(e,t){var n=Dr.lastIndex=Ur.lastIndex=0,r,i,s,o=-1,a=[],l=[];for(e=e+"",t=t+"";(r=Dr.exec(e))&&(i=Ur.exec(t));)(s=i.index)>n&&(s=t.slice(n,s),
a[o]?a[o]+=s:a[++o]=s),(r=r[0])===(i=i[0])?a[o]?a[o]+=i:a[++o]=i:(a[++o]=null,l.push({i:o,x:Ct(r,i)})),n=Ur.lastIndex;return n<t.length&&(s=t.slice(n),a[o]?a[o]+=
s:a[++o]=s),a.length<2?l[0]?ac(l[0].x):oc(t):(t=l.length,function(u){for(var c=0,h;c<t;++c)a[(h=l[c]).i]=h.x(u);return a.join("")})}var Xs=180/Math.PI,Br={translateX:0,translateY:0,rotate:0,skewX:0,scaleX:1,scaleY:1};function to(e,t,n,r,i,s){var o,a,l;return(o=Math.sqrt(e*e+t*t))&&(e/=o,t/=o),
(l=e*n+t*r)&&(n-=e*l,r-=t*l),(a=Math.sqrt(n*n+r*r))&&(n/=a,r/=a,l/=a),e*r<t*n&&(e=-e,t=-t,l=-l,o=-o),{translateX:i,translateY:s,rotate:Math.atan2(t,e)*Xs,skewX:Math.
atan(l)*Xs,scaleX:o,scaleY:a}}var Sn;function lc(e){let t=new(typeof DOMMatrix=="function"?DOMMatrix:WebKitCSSMatrix)(e+"");return t.isIdentity?Br:to(t.a,t.b,t.
c,t.d,t.e,t.f)}function uc(e){return e==null||(Sn||(Sn=document.createElementNS("http://www.w3.org/2000/svg","g")),Sn.setAttribute("transform",e),!(e=Sn.transform.
baseVal.consolidate()))?Br:(e=e.matrix,to(e.a,e.b,e.c,e.d,e.e,e.f))}function eo(e,t,n,r){function i(u){return u.length?u.pop()+" ":""}function s(u,c,h,p,d,m){if(u!==
h||c!==p){var y=d.push("translate(",null,t,null,n);m.push({i:y-4,x:Ct(u,h)},{i:y-2,x:Ct(c,p)})}else(h||p)&&d.push("translate("+h+t+p+n)}function o(u,c,h,p){u!==
c?(u-c>180?c+=360:c-u>180&&(u+=360),p.push({i:h.push(i(h)+"rotate(",null,r)-2,x:Ct(u,c)})):c&&h.push(i(h)+"rotate("+c+r)}function a(u,c,h,p){u!==c?p.push({i:h.push(
i(h)+"skewX(",null,r)-2,x:Ct(u,c)}):c&&h.push(i(h)+"skewX("+c+r)}function l(u,c,h,p,d,m){if(u!==h||c!==p){var y=d.push(i(d)+"scale(",null,",",null,")");m.push({
i:y-4,x:Ct(u,h)},{i:y-2,x:Ct(c,p)})}else(h!==1||p!==1)&&d.push(i(d)+"scale("+h+","+p+")")}return function(u,c){var h=[],p=[];return u=e(u),c=e(c),s(u.translateX,
u.translateY,c.translateX,c.translateY,h,p),o(u.rotate,c.rotate,h,p),a(u.skewX,c.skewX,h,p),l(u.scaleX,u.scaleY,c.scaleX,c.scaleY,h,p),u=c=null,function(d){for(var m=-1,
y=p.length,v;++m<y;)h[(v=p[m]).i]=v.x(d);return h.join("")}}}var no=eo(lc,"px, ","px)","deg)"),ro=eo(uc,", ",")",")"),cc=1e-12;function Ys(e){return((e=Math.exp(
e))+1/e)/2}function fc(e){return((e=Math.exp(e))-1/e)/2}function hc(e){return((e=Math.exp(2*e))-1)/(e+1)}var io=(function e(t,n,r){function i(s,o){var a=s[0],l=s[1],
u=s[2],c=o[0],h=o[1],p=o[2],d=c-a,m=h-l,y=d*d+m*m,v,g;if(y<cc)g=Math.log(p/u)/t,v=function(B){return[a+B*d,l+B*m,u*Math.exp(t*B*g)]};else{var w=Math.sqrt(y),x=(p*
p-u*u+r*y)/(2*u*n*w),$=(p*p-u*u-r*y)/(2*p*n*w),P=Math.log(Math.sqrt(x*x+1)-x),O=Math.log(Math.sqrt($*$+1)-$);g=(O-P)/t,v=function(B){var Z=B*g,rt=Ys(P),V=u/(n*w)*
(rt*hc(t*Z+P)-fc(P));return[a+V*d,l+V*m,u*rt/Ys(t*Z+P)]}}return v.duration=Math.abs(g)*1e3*t/Math.SQRT2,v}return i.rho=function(s){var o=Math.max(.001,+s),a=o*o,
l=a*a;return e(o,a,l)},i})(Math.SQRT2,2,4);function so(e){return function(t,n){var r=e((t=xn(t)).h,(n=xn(n)).h),i=tt(t.s,n.s),s=tt(t.l,n.l),o=tt(t.opacity,n.opacity);
return function(a){return t.h=r(a),t.s=i(a),t.l=s(a),t.opacity=o(a),t+""}}}var sd=so(Fr),od=so(tt);function oo(e){return function(t,n){var r=e((t=kn(t)).h,(n=kn(n)).h),i=tt(t.c,n.c),s=tt(t.l,n.l),o=tt(t.opacity,n.opacity);return function(a){return t.h=r(a),t.
c=i(a),t.l=s(a),t.opacity=o(a),t+""}}}var ad=oo(Fr),ld=oo(tt);function ao(e){return(function t(n){n=+n;function r(i,s){var o=e((i=Mn(i)).h,(s=Mn(s)).h),a=tt(i.s,
s.s),l=tt(i.l,s.l),u=tt(i.opacity,s.opacity);return function(c){return i.h=o(c),i.s=a(c),i.l=l(Math.pow(c,n)),i.opacity=u(c),i+""}}return r.gamma=t,r})(1)}var ud=ao(
Fr),cd=ao(tt);var ge=0,Le=0,Te=0,uo=1e3,En,Ie,On=0,ee=0,Cn=0,Ue=typeof performance=="object"&&performance.now?performance:Date,co=typeof window=="object"&&window.requestAnimationFrame?
window.requestAnimationFrame.bind(window):function(e){setTimeout(e,17)};function An(){return ee||(co(dc),ee=Ue.now()+Cn)}function dc(){ee=0}function Nn(){this._call=
this._time=this._next=null}Nn.prototype=Gr.prototype={constructor:Nn,restart:function(e,t,n){if(typeof e!="function")throw new TypeError("callback is not a func\
tion");n=(n==null?An():+n)+(t==null?0:+t),!this._next&&Ie!==this&&(Ie?Ie._next=this:En=this,Ie=this),this._call=e,this._time=n,Vr()},stop:function(){this._call&&
(this._call=null,this._time=1/0,Vr())}};function Gr(e,t,n){var r=new Nn;return r.restart(e,t,n),r}function pc(){An(),++ge;for(var e=En,t;e;)(t=ee-e._time)>=0&&e.
_call.call(void 0,t),e=e._next;--ge}function lo(){ee=(On=Ue.now())+Cn,ge=Le=0;try{pc()}finally{ge=0,gc(),ee=0}}function mc(){var e=Ue.now(),t=e-On;t>uo&&(Cn-=t,
On=e)}function gc(){for(var e,t=En,n,r=1/0;t;)t._call?(r>t._time&&(r=t._time),e=t,t=t._next):(n=t._next,t._next=null,t=e?e._next=n:En=n);Ie=e,Vr(r)}function Vr(e){
if(!ge){Le&&(Le=clearTimeout(Le));var t=e-ee;t>24?(e<1/0&&(Le=setTimeout(lo,Math.ceil(e-Ue.now()-Cn)+1)),Te&&(Te=clearInterval(Te))):(Te||(On=Ue.now(),Te=setInterval(
mc,uo)),ge=1,co(lo))}}function Wr(e,t,n){var r=new Nn;return t=t==null?0:+t,r.restart(i=>{r.stop(),e(i+t)},t,n),r}function ho(e){return((e*=2)<=1?e*e*e:(e-=2)*e*e+2)/2}var Hr=3,dd=(function e(t){t=+t;function n(r){return Math.pow(r,t)}return n.exponent=e,n})(Hr),pd=(function e(t){
t=+t;function n(r){return 1-Math.pow(1-r,t)}return n.exponent=e,n})(Hr),md=(function e(t){t=+t;function n(r){return((r*=2)<=1?Math.pow(r,t):2-Math.pow(2-r,t))/2}
return n.exponent=e,n})(Hr),bc=Math.PI,gd=bc/2;function Pn(e){return(Math.pow(2,-10*e)-.0009765625)*1.0009775171065494}var fo=4/11,bd=6/11,yd=8/11,vd=3/4,wd=9/11,_d=10/11,xd=15/16,kd=21/22,$d=63/64,Md=1/fo/fo;var qr=1.70158,Sd=(function e(t){t=+t;function n(r){return(r=+r)*r*(t*(r-1)+r)}return n.overshoot=e,n})(qr),Ed=(function e(t){t=+t;function n(r){return--r*r*((r+
1)*t+r)+1}return n.overshoot=e,n})(qr),Od=(function e(t){t=+t;function n(r){return((r*=2)<1?r*r*((t+1)*r-t):(r-=2)*r*((t+1)*r+t)+2)/2}return n.overshoot=e,n})(qr),
be=2*Math.PI,Kr=1,Xr=.3,Nd=(function e(t,n){var r=Math.asin(1/(t=Math.max(1,t)))*(n/=be);function i(s){return t*Pn(- --s)*Math.sin((r-s)/n)}return i.amplitude=function(s){
return e(s,n*be)},i.period=function(s){return e(t,s)},i})(Kr,Xr),Cd=(function e(t,n){var r=Math.asin(1/(t=Math.max(1,t)))*(n/=be);function i(s){return 1-t*Pn(s=
+s)*Math.sin((s+r)/n)}return i.amplitude=function(s){return e(s,n*be)},i.period=function(s){return e(t,s)},i})(Kr,Xr),Ad=(function e(t,n){var r=Math.asin(1/(t=Math.
max(1,t)))*(n/=be);function i(s){return((s=s*2-1)<0?t*Pn(-s)*Math.sin((r-s)/n):2-t*Pn(s)*Math.sin((r+s)/n))/2}return i.amplitude=function(s){return e(s,n*be)},i.
period=function(s){return e(t,s)},i})(Kr,Xr);var yc=Oe("start","end","cancel","interrupt"),vc=[],go=0,po=1,Yr=2,Tn=3,mo=4,Zr=5,Ln=6;function In(e,t,n,r,i,s){var o=e.__transition;if(!o)e.__transition={};else if(n in
o)return;wc(e,n,{name:t,index:r,group:i,on:yc,tween:vc,time:s.time,delay:s.delay,duration:s.duration,ease:s.ease,timer:null,state:go})}function jr(e,t){var n=pt(
e,t);if(n.state>go)throw new Error("too late; already scheduled");return n}function _t(e,t){var n=pt(e,t);if(n.state>Tn)throw new Error("too late; already runni\
ng");return n}function pt(e,t){var n=e.__transition;if(!n||!(n=n[t]))throw new Error("transition not found");return n}function wc(e,t,n){var r=e.__transition,i;
r[t]=n,n.timer=Gr(s,0,n.time);function s(u){n.state=po,n.timer.restart(o,n.delay,n.time),n.delay<=u&&o(u-n.delay)}function o(u){var c,h,p,d;if(n.state!==po)return l();
for(c in r)if(d=r[c],d.name===n.name){if(d.state===Tn)return Wr(o);d.state===mo?(d.state=Ln,d.timer.stop(),d.on.call("interrupt",e,e.__data__,d.index,d.group),delete r[c]):
+c<t&&(d.state=Ln,d.timer.stop(),d.on.call("cancel",e,e.__data__,d.index,d.group),delete r[c])}if(Wr(function(){n.state===Tn&&(n.state=mo,n.timer.restart(a,n.delay,
n.time),a(u))}),n.state=Yr,n.on.call("start",e,e.__data__,n.index,n.group),n.state===Yr){for(n.state=Tn,i=new Array(p=n.tween.length),c=0,h=-1;c<p;++c)(d=n.tween[c].
value.call(e,e.__data__,n.index,n.group))&&(i[++h]=d);i.length=h+1}}function a(u){for(var c=u<n.duration?n.ease.call(null,u/n.duration):(n.timer.restart(l),n.state=
Zr,1),h=-1,p=i.length;++h<p;)i[h].call(e,c);n.state===Zr&&(n.on.call("end",e,e.__data__,n.index,n.group),l())}function l(){n.state=Ln,n.timer.stop(),delete r[t];
for(var u in r)return;delete e.__transition}}function De(e,t){var n=e.__transition,r,i,s=!0,o;if(n){t=t==null?null:t+"";for(o in n){if((r=n[o]).name!==t){s=!1;continue}
i=r.state>Yr&&r.state<Zr,r.state=Ln,r.timer.stop(),r.on.call(i?"interrupt":"cancel",e,e.__data__,r.index,r.group),delete n[o]}s&&delete e.__transition}}function _c(e){
return this.each(function(){De(this,e)})}function xc(e,t){var n,r;return function(){var i=_t(this,e),s=i.tween;if(s!==n){r=n=s;for(var o=0,a=r.length;o<a;++o)if(r[o].
name===t){r=r.slice(),r.splice(o,1);break}}i.tween=r}}function kc(e,t,n){var r,i;if(typeof n!="function")throw new Error;return function(){var s=_t(this,e),o=s.
tween;if(o!==r){i=(r=o).slice();for(var a={name:t,value:n},l=0,u=i.length;l<u;++l)if(i[l].name===t){i[l]=a;break}l===u&&i.push(a)}s.tween=i}}function $c(e,t){var n=this.
_id;if(e+="",arguments.length<2){for(var r=pt(this.node(),n).tween,i=0,s=r.length,o;i<s;++i)if((o=r[i]).name===e)return o.value;return null}return this.each((t==
null?xc:kc)(n,e,t))}function Qr(e,t,n){var r=e._id;return e.each(function(){var i=_t(this,r);(i.value||(i.value={}))[t]=n.apply(this,arguments)}),function(i){return pt(
i,r).value[t]}}function bo(e,t){var n;return(typeof t=="number"?Ct:t instanceof te?Rr:(n=te(t))?(t=n,Rr):Js)(e,t)}function Mc(e){return function(){this.removeAttribute(
e)}}function Sc(e){return function(){this.removeAttributeNS(e.space,e.local)}}function Ec(e,t,n){var r,i=n+"",s;return function(){var o=this.getAttribute(e);return o===
i?null:o===r?s:s=t(r=o,n)}}function Oc(e,t,n){var r,i=n+"",s;return function(){var o=this.getAttributeNS(e.space,e.local);return o===i?null:o===r?s:s=t(r=o,n)}}
function Nc(e,t,n){var r,i,s;return function(){var o,a=n(this),l;return a==null?void this.removeAttribute(e):(o=this.getAttribute(e),l=a+"",o===l?null:o===r&&l===
i?s:(i=l,s=t(r=o,a)))}}function Cc(e,t,n){var r,i,s;return function(){var o,a=n(this),l;return a==null?void this.removeAttributeNS(e.space,e.local):(o=this.getAttributeNS(
e.space,e.local),l=a+"",o===l?null:o===r&&l===i?s:(i=l,s=t(r=o,a)))}}function Ac(e,t){var n=Ee(e),r=n==="transform"?ro:bo;return this.attrTween(e,typeof t=="fun\
ction"?(n.local?Cc:Nc)(n,r,Qr(this,"attr."+e,t)):t==null?(n.local?Sc:Mc)(n):(n.local?Oc:Ec)(n,r,t))}function Pc(e,t){return function(n){this.setAttribute(e,t.call(
this,n))}}function Tc(e,t){return function(n){this.setAttributeNS(e.space,e.local,t.call(this,n))}}function Lc(e,t){var n,r;function i(){var s=t.apply(this,arguments);
return s!==r&&(n=(r=s)&&Tc(e,s)),n}return i._value=t,i}function Ic(e,t){var n,r;function i(){var s=t.apply(this,arguments);return s!==r&&(n=(r=s)&&Pc(e,s)),n}return i.
_value=t,i}function Uc(e,t){var n="attr."+e;if(arguments.length<2)return(n=this.tween(n))&&n._value;if(t==null)return this.tween(n,null);if(typeof t!="function")
throw new Error;var r=Ee(e);return this.tween(n,(r.local?Lc:Ic)(r,t))}function Dc(e,t){return function(){jr(this,e).delay=+t.apply(this,arguments)}}function Bc(e,t){
return t=+t,function(){jr(this,e).delay=t}}function zc(e){var t=this._id;return arguments.length?this.each((typeof e=="function"?Dc:Bc)(t,e)):pt(this.node(),t).
delay}function Fc(e,t){return function(){_t(this,e).duration=+t.apply(this,arguments)}}function Rc(e,t){return t=+t,function(){_t(this,e).duration=t}}function Vc(e){
var t=this._id;return arguments.length?this.each((typeof e=="function"?Fc:Rc)(t,e)):pt(this.node(),t).duration}function Gc(e,t){if(typeof t!="function")throw new Error;
return function(){_t(this,e).ease=t}}function Wc(e){var t=this._id;return arguments.length?this.each(Gc(t,e)):pt(this.node(),t).ease}function Hc(e,t){return function(){
var n=t.apply(this,arguments);if(typeof n!="function")throw new Error;_t(this,e).ease=n}}function qc(e){if(typeof e!="function")throw new Error;return this.each(
Hc(this._id,e))}function Kc(e){typeof e!="function"&&(e=$r(e));for(var t=this._groups,n=t.length,r=new Array(n),i=0;i<n;++i)for(var s=t[i],o=s.length,a=r[i]=[],
l,u=0;u<o;++u)(l=s[u])&&e.call(l,l.__data__,u,s)&&a.push(l);return new Pt(r,this._parents,this._name,this._id)}function Xc(e){if(e._id!==this._id)throw new Error;
for(var t=this._groups,n=e._groups,r=t.length,i=n.length,s=Math.min(r,i),o=new Array(r),a=0;a<s;++a)for(var l=t[a],u=n[a],c=l.length,h=o[a]=new Array(c),p,d=0;d<
c;++d)(p=l[d]||u[d])&&(h[d]=p);for(;a<r;++a)o[a]=t[a];return new Pt(o,this._parents,this._name,this._id)}function Yc(e){return(e+"").trim().split(/^|\s+/).every(
function(t){var n=t.indexOf(".");return n>=0&&(t=t.slice(0,n)),!t||t==="start"})}function Zc(e,t,n){var r,i,s=Yc(t)?jr:_t;return function(){var o=s(this,e),a=o.
on;a!==r&&(i=(r=a).copy()).on(t,n),o.on=i}}function jc(e,t){var n=this._id;return arguments.length<2?pt(this.node(),n).on.on(e):this.each(Zc(n,e,t))}function Qc(e){
return function(){var t=this.parentNode;for(var n in this.__transition)if(+n!==e)return;t&&t.removeChild(this)}}function Jc(){return this.on("end.remove",Qc(this.
_id))}function tf(e){var t=this._name,n=this._id;typeof e!="function"&&(e=gn(e));for(var r=this._groups,i=r.length,s=new Array(i),o=0;o<i;++o)for(var a=r[o],l=a.
length,u=s[o]=new Array(l),c,h,p=0;p<l;++p)(c=a[p])&&(h=e.call(c,c.__data__,p,a))&&("__data__"in c&&(h.__data__=c.__data__),u[p]=h,In(u[p],t,n,p,u,pt(c,n)));return new Pt(
s,this._parents,t,n)}function ef(e){var t=this._name,n=this._id;typeof e!="function"&&(e=kr(e));for(var r=this._groups,i=r.length,s=[],o=[],a=0;a<i;++a)for(var l=r[a],
u=l.length,c,h=0;h<u;++h)if(c=l[h]){for(var p=e.call(c,c.__data__,h,l),d,m=pt(c,n),y=0,v=p.length;y<v;++y)(d=p[y])&&In(d,t,n,y,p,m);s.push(p),o.push(c)}return new Pt(
s,o,t,n)}var nf=Yt.prototype.constructor;function rf(){return new nf(this._groups,this._parents)}function sf(e,t){var n,r,i;return function(){var s=Xt(this,e),o=(this.
style.removeProperty(e),Xt(this,e));return s===o?null:s===n&&o===r?i:i=t(n=s,r=o)}}function yo(e){return function(){this.style.removeProperty(e)}}function of(e,t,n){
var r,i=n+"",s;return function(){var o=Xt(this,e);return o===i?null:o===r?s:s=t(r=o,n)}}function af(e,t,n){var r,i,s;return function(){var o=Xt(this,e),a=n(this),
l=a+"";return a==null&&(l=a=(this.style.removeProperty(e),Xt(this,e))),o===l?null:o===r&&l===i?s:(i=l,s=t(r=o,a))}}function lf(e,t){var n,r,i,s="style."+t,o="en\
d."+s,a;return function(){var l=_t(this,e),u=l.on,c=l.value[s]==null?a||(a=yo(t)):void 0;(u!==n||i!==c)&&(r=(n=u).copy()).on(o,i=c),l.on=r}}function uf(e,t,n){var r=(e+=
"")=="transform"?no:bo;return t==null?this.styleTween(e,sf(e,r)).on("end.style."+e,yo(e)):typeof t=="function"?this.styleTween(e,af(e,r,Qr(this,"style."+e,t))).
each(lf(this._id,e)):this.styleTween(e,of(e,r,t),n).on("end.style."+e,null)}function cf(e,t,n){return function(r){this.style.setProperty(e,t.call(this,r),n)}}function ff(e,t,n){
var r,i;function s(){var o=t.apply(this,arguments);return o!==i&&(r=(i=o)&&cf(e,o,n)),r}return s._value=t,s}function hf(e,t,n){var r="style."+(e+="");if(arguments.
length<2)return(r=this.tween(r))&&r._value;if(t==null)return this.tween(r,null);if(typeof t!="function")throw new Error;return this.tween(r,ff(e,t,n??""))}function df(e){
return function(){this.textContent=e}}function pf(e){return function(){var t=e(this);this.textContent=t??""}}function mf(e){return this.tween("text",typeof e=="\
function"?pf(Qr(this,"text",e)):df(e==null?"":e+""))}function gf(e){return function(t){this.textContent=e.call(this,t)}}function bf(e){var t,n;function r(){var i=e.
apply(this,arguments);return i!==n&&(t=(n=i)&&gf(i)),t}return r._value=e,r}function yf(e){var t="text";if(arguments.length<1)return(t=this.tween(t))&&t._value;if(e==
null)return this.tween(t,null);if(typeof e!="function")throw new Error;return this.tween(t,bf(e))}function vf(){for(var e=this._name,t=this._id,n=vo(),r=this._groups,
i=r.length,s=0;s<i;++s)for(var o=r[s],a=o.length,l,u=0;u<a;++u)if(l=o[u]){var c=pt(l,t);In(l,e,n,u,o,{time:c.time+c.delay+c.duration,delay:0,duration:c.duration,
ease:c.ease})}return new Pt(r,this._parents,e,n)}function wf(){var e,t,n=this,r=n._id,i=n.size();return new Promise(function(s,o){var a={value:o},l={value:function(){
--i===0&&s()}};n.each(function(){var u=_t(this,r),c=u.on;c!==e&&(t=(e=c).copy(),t._.cancel.push(a),t._.interrupt.push(a),t._.end.push(l)),u.on=t}),i===0&&s()})}
var _f=0;function Pt(e,t,n,r){this._groups=e,this._parents=t,this._name=n,this._id=r}function xf(e){return Yt().transition(e)}function vo(){return++_f}var At=Yt.
prototype;Pt.prototype=xf.prototype={constructor:Pt,select:tf,selectAll:ef,selectChild:At.selectChild,selectChildren:At.selectChildren,filter:Kc,merge:Xc,selection:rf,
transition:vf,call:At.call,nodes:At.nodes,node:At.node,size:At.size,empty:At.empty,each:At.each,on:jc,attr:Ac,attrTween:Uc,style:uf,styleTween:hf,text:mf,textTween:yf,
remove:Jc,tween:$c,delay:zc,duration:Vc,ease:Wc,easeVarying:qc,end:wf,[Symbol.iterator]:At[Symbol.iterator]};var kf={time:null,delay:0,duration:250,ease:ho};function $f(e,t){
for(var n;!(n=e.__transition)||!(n=n[t]);)if(!(e=e.parentNode))throw new Error(`transition ${t} not found`);return n}function Mf(e){var t,n;e instanceof Pt?(t=e.
_id,e=e._name):(t=vo(),(n=kf).time=An(),e=e==null?null:e+"");for(var r=this._groups,i=r.length,s=0;s<i;++s)for(var o=r[s],a=o.length,l,u=0;u<a;++u)(l=o[u])&&In(
l,e,t,u,o,n||$f(l,t));return new Pt(r,this._parents,e,t)}Yt.prototype.interrupt=_c;Yt.prototype.transition=Mf;var Un=e=>()=>e;function Sf(e,{sourceEvent:t,target:n,transform:r,dispatch:i}){Object.defineProperties(this,{type:{value:e,enumerable:!0,configurable:!0},sourceEvent:{
value:t,enumerable:!0,configurable:!0},target:{value:n,enumerable:!0,configurable:!0},transform:{value:r,enumerable:!0,configurable:!0},_:{value:i}})}function Tt(e,t,n){
this.k=e,this.x=t,this.y=n}Tt.prototype={constructor:Tt,scale:function(e){return e===1?this:new Tt(this.k*e,this.x,this.y)},translate:function(e,t){return e===0&
t===0?this:new Tt(this.k,this.x+this.k*e,this.y+this.k*t)},apply:function(e){return[e[0]*this.k+this.x,e[1]*this.k+this.y]},applyX:function(e){return e*this.k+this.
x},applyY:function(e){return e*this.k+this.y},invert:function(e){return[(e[0]-this.x)/this.k,(e[1]-this.y)/this.k]},invertX:function(e){return(e-this.x)/this.k},
invertY:function(e){return(e-this.y)/this.k},rescaleX:function(e){return e.copy().domain(e.range().map(this.invertX,this).map(e.invert,e))},rescaleY:function(e){
return e.copy().domain(e.range().map(this.invertY,this).map(e.invert,e))},toString:function(){return"translate("+this.x+","+this.y+") scale("+this.k+")"}};var Ft=new Tt(
1,0,0);Ef.prototype=Tt.prototype;function Ef(e){for(;!e.__zoom;)if(!(e=e.parentNode))return Ft;return e.__zoom}function Jr(e){e.stopImmediatePropagation()}function Be(e){
e.preventDefault(),e.stopImmediatePropagation()}function Of(e){return(!e.ctrlKey||e.type==="wheel")&&!e.button}function Nf(){var e=this;return e instanceof SVGElement?
(e=e.ownerSVGElement||e,e.hasAttribute("viewBox")?(e=e.viewBox.baseVal,[[e.x,e.y],[e.x+e.width,e.y+e.height]]):[[0,0],[e.width.baseVal.value,e.height.baseVal.value]]):
[[0,0],[e.clientWidth,e.clientHeight]]}function wo(){return this.__zoom||Ft}function Cf(e){return-e.deltaY*(e.deltaMode===1?.05:e.deltaMode?1:.002)*(e.ctrlKey?10:
1)}function Af(){return navigator.maxTouchPoints||"ontouchstart"in this}function Pf(e,t,n){var r=e.invertX(t[0][0])-n[0][0],i=e.invertX(t[1][0])-n[1][0],s=e.invertY(
t[0][1])-n[0][1],o=e.invertY(t[1][1])-n[1][1];return e.translate(i>r?(r+i)/2:Math.min(0,r)||Math.max(0,i),o>s?(s+o)/2:Math.min(0,s)||Math.max(0,o))}function _o(){
var e=Of,t=Nf,n=Pf,r=Cf,i=Af,s=[0,1/0],o=[[-1/0,-1/0],[1/0,1/0]],a=250,l=io,u=Oe("start","zoom","end"),c,h,p,d=500,m=150,y=0,v=10;function g(b){b.property("__zo\
om",wo).on("wheel.zoom",Z,{passive:!1}).on("mousedown.zoom",rt).on("dblclick.zoom",V).filter(i).on("touchstart.zoom",j).on("touchmove.zoom",G).on("touchend.zoom\
 touchcancel.zoom",q).style("-webkit-tap-highlight-color","rgba(0,0,0,0)")}g.transform=function(b,k,_,M){var S=b.selection?b.selection():b;S.property("__zoom",wo),
b!==S?P(b,k,_,M):S.interrupt().each(function(){O(this,arguments).event(M).start().zoom(null,typeof k=="function"?k.apply(this,arguments):k).end()})},g.scaleBy=function(b,k,_,M){
g.scaleTo(b,function(){var S=this.__zoom.k,C=typeof k=="function"?k.apply(this,arguments):k;return S*C},_,M)},g.scaleTo=function(b,k,_,M){g.transform(b,function(){
var S=t.apply(this,arguments),C=this.__zoom,T=_==null?$(S):typeof _=="function"?_.apply(this,arguments):_,U=C.invert(T),R=typeof k=="function"?k.apply(this,arguments):
k;return n(x(w(C,R),T,U),S,o)},_,M)},g.translateBy=function(b,k,_,M){g.transform(b,function(){return n(this.__zoom.translate(typeof k=="function"?k.apply(this,arguments):
k,typeof _=="function"?_.apply(this,arguments):_),t.apply(this,arguments),o)},null,M)},g.translateTo=function(b,k,_,M,S){g.transform(b,function(){var C=t.apply(
this,arguments),T=this.__zoom,U=M==null?$(C):typeof M=="function"?M.apply(this,arguments):M;return n(Ft.translate(U[0],U[1]).scale(T.k).translate(typeof k=="fun\
ction"?-k.apply(this,arguments):-k,typeof _=="function"?-_.apply(this,arguments):-_),C,o)},M,S)};function w(b,k){return k=Math.max(s[0],Math.min(s[1],k)),k===b.
k?b:new Tt(k,b.x,b.y)}function x(b,k,_){var M=k[0]-_[0]*b.k,S=k[1]-_[1]*b.k;return M===b.x&&S===b.y?b:new Tt(b.k,M,S)}function $(b){return[(+b[0][0]+ +b[1][0])/
2,(+b[0][1]+ +b[1][1])/2]}function P(b,k,_,M){b.on("start.zoom",function(){O(this,arguments).event(M).start()}).on("interrupt.zoom end.zoom",function(){O(this,arguments).
event(M).end()}).tween("zoom",function(){var S=this,C=arguments,T=O(S,C).event(M),U=t.apply(S,C),R=_==null?$(U):typeof _=="function"?_.apply(S,C):_,mt=Math.max(
U[1][0]-U[0][0],U[1][1]-U[0][1]),K=S.__zoom,st=typeof k=="function"?k.apply(S,C):k,xt=l(K.invert(R).concat(mt/K.k),st.invert(R).concat(mt/st.k));return function(ot){
if(ot===1)ot=st;else{var kt=xt(ot),Fn=mt/kt[2];ot=new Tt(Fn,R[0]-kt[0]*Fn,R[1]-kt[1]*Fn)}T.zoom(null,ot)}})}function O(b,k,_){return!_&&b.__zooming||new B(b,k)}
function B(b,k){this.that=b,this.args=k,this.active=0,this.sourceEvent=null,this.extent=t.apply(b,k),this.taps=0}B.prototype={event:function(b){return b&&(this.
sourceEvent=b),this},start:function(){return++this.active===1&&(this.that.__zooming=this,this.emit("start")),this},zoom:function(b,k){return this.mouse&&b!=="mo\
use"&&(this.mouse[1]=k.invert(this.mouse[0])),this.touch0&&b!=="touch"&&(this.touch0[1]=k.invert(this.touch0[0])),this.touch1&&b!=="touch"&&(this.touch1[1]=k.invert(
this.touch1[0])),this.that.__zoom=k,this.emit("zoom"),this},end:function(){return--this.active===0&&(delete this.that.__zooming,this.emit("end")),this},emit:function(b){
var k=Y(this.that).datum();u.call(b,this.that,new Sf(b,{sourceEvent:this.sourceEvent,target:g,transform:this.that.__zoom,dispatch:u}),k)}};function Z(b,...k){if(!e.
apply(this,arguments))return;var _=O(this,k).event(b),M=this.__zoom,S=Math.max(s[0],Math.min(s[1],M.k*Math.pow(2,r.apply(this,arguments)))),C=Ot(b);if(_.wheel)(_.
mouse[0][0]!==C[0]||_.mouse[0][1]!==C[1])&&(_.mouse[1]=M.invert(_.mouse[0]=C)),clearTimeout(_.wheel);else{if(M.k===S)return;_.mouse=[C,M.invert(C)],De(this),_.start()}
Be(b),_.wheel=setTimeout(T,m),_.zoom("mouse",n(x(w(M,S),_.mouse[0],_.mouse[1]),_.extent,o));function T(){_.wheel=null,_.end()}}function rt(b,...k){if(p||!e.apply(
this,arguments))return;var _=b.currentTarget,M=O(this,k,!0).event(b),S=Y(b.view).on("mousemove.zoom",R,!0).on("mouseup.zoom",mt,!0),C=Ot(b,_),T=b.clientX,U=b.clientY;
ks(b.view),Jr(b),M.mouse=[C,this.__zoom.invert(C)],De(this),M.start();function R(K){if(Be(K),!M.moved){var st=K.clientX-T,xt=K.clientY-U;M.moved=st*st+xt*xt>y}M.
event(K).zoom("mouse",n(x(M.that.__zoom,M.mouse[0]=Ot(K,_),M.mouse[1]),M.extent,o))}function mt(K){S.on("mousemove.zoom mouseup.zoom",null),$s(K.view,M.moved),Be(
K),M.event(K).end()}}function V(b,...k){if(e.apply(this,arguments)){var _=this.__zoom,M=Ot(b.changedTouches?b.changedTouches[0]:b,this),S=_.invert(M),C=_.k*(b.shiftKey?
.5:2),T=n(x(w(_,C),M,S),t.apply(this,k),o);Be(b),a>0?Y(this).transition().duration(a).call(P,T,M,b):Y(this).call(g.transform,T,M,b)}}function j(b,...k){if(e.apply(
this,arguments)){var _=b.touches,M=_.length,S=O(this,k,b.changedTouches.length===M).event(b),C,T,U,R;for(Jr(b),T=0;T<M;++T)U=_[T],R=Ot(U,this),R=[R,this.__zoom.
invert(R),U.identifier],S.touch0?!S.touch1&&S.touch0[2]!==R[2]&&(S.touch1=R,S.taps=0):(S.touch0=R,C=!0,S.taps=1+!!c);c&&(c=clearTimeout(c)),C&&(S.taps<2&&(h=R[0],
c=setTimeout(function(){c=null},d)),De(this),S.start())}}function G(b,...k){if(this.__zooming){var _=O(this,k).event(b),M=b.changedTouches,S=M.length,C,T,U,R;for(Be(
b),C=0;C<S;++C)T=M[C],U=Ot(T,this),_.touch0&&_.touch0[2]===T.identifier?_.touch0[0]=U:_.touch1&&_.touch1[2]===T.identifier&&(_.touch1[0]=U);if(T=_.that.__zoom,_.
touch1){var mt=_.touch0[0],K=_.touch0[1],st=_.touch1[0],xt=_.touch1[1],ot=(ot=st[0]-mt[0])*ot+(ot=st[1]-mt[1])*ot,kt=(kt=xt[0]-K[0])*kt+(kt=xt[1]-K[1])*kt;T=w(T,
Math.sqrt(ot/kt)),U=[(mt[0]+st[0])/2,(mt[1]+st[1])/2],R=[(K[0]+xt[0])/2,(K[1]+xt[1])/2]}else if(_.touch0)U=_.touch0[0],R=_.touch0[1];else return;_.zoom("touch",
n(x(T,U,R),_.extent,o))}}function q(b,...k){if(this.__zooming){var _=O(this,k).event(b),M=b.changedTouches,S=M.length,C,T;for(Jr(b),p&&clearTimeout(p),p=setTimeout(
function(){p=null},d),C=0;C<S;++C)T=M[C],_.touch0&&_.touch0[2]===T.identifier?delete _.touch0:_.touch1&&_.touch1[2]===T.identifier&&delete _.touch1;if(_.touch1&&
!_.touch0&&(_.touch0=_.touch1,delete _.touch1),_.touch0)_.touch0[1]=this.__zoom.invert(_.touch0[0]);else if(_.end(),_.taps===2&&(T=Ot(T,this),Math.hypot(h[0]-T[0],
h[1]-T[1])<v)){var U=Y(this).on("dblclick.zoom");U&&U.apply(this,arguments)}}}return g.wheelDelta=function(b){return arguments.length?(r=typeof b=="function"?b:
Un(+b),g):r},g.filter=function(b){return arguments.length?(e=typeof b=="function"?b:Un(!!b),g):e},g.touchable=function(b){return arguments.length?(i=typeof b=="\
function"?b:Un(!!b),g):i},g.extent=function(b){return arguments.length?(t=typeof b=="function"?b:Un([[+b[0][0],+b[0][1]],[+b[1][0],+b[1][1]]]),g):t},g.scaleExtent=
function(b){return arguments.length?(s[0]=+b[0],s[1]=+b[1],g):[s[0],s[1]]},g.translateExtent=function(b){return arguments.length?(o[0][0]=+b[0][0],o[1][0]=+b[1][0],
o[0][1]=+b[0][1],o[1][1]=+b[1][1],g):[[o[0][0],o[0][1]],[o[1][0],o[1][1]]]},g.constrain=function(b){return arguments.length?(n=b,g):n},g.duration=function(b){return arguments.
length?(a=+b,g):a},g.interpolate=function(b){return arguments.length?(l=b,g):l},g.on=function(){var b=u.on.apply(u,arguments);return b===u?g:b},g.clickDistance=
function(b){return arguments.length?(y=(b=+b)*b,g):Math.sqrt(y)},g.tapDistance=function(b){return arguments.length?(v=+b,g):v},g}var Dn=30,ko=1.15,ti=e=>Math.floor(Math.log(e)/Math.log(ko)+1e-6),xo=e=>ko**e,Bn=class e extends W{state={window:null};svg=at();world=at();zooming;transform=Ft;drawn=null;places=new WeakMap;lit=[];lastFold=null;measured=[
1,1];watcher=new ResizeObserver(()=>this.resized());componentDidMount(){this.props.mounted(this);let t=this.svg.current;this.zooming=_o().scaleExtent([.015,4]).
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
zooming.scaleBy(Y(this.svg.current),t)}fit(){let{left:t,right:n,height:r}=this.props.scene,[i,s]=this.size(),o=Me(i),a=(i-2*o)/(n-t),l=(s-2*Dn)/r,u=Math.max(Math.
min(a,l,1.15),Math.min(a,.85),nn),c=a<u?Math.min(o-t*u,Math.max(i-o-n*u,i/2)):i/2-(t+n)/2*u,h=r*u<s-2*Dn?(s-r*u)/2:Dn;this.zooming.transform(Y(this.svg.current),
Ft.translate(c,h).scale(u))}fitAll(){let{left:t,right:n,height:r}=this.props.scene,[i,s]=this.size(),o=Math.min((i-2*Me(i))/(n-t),(s-2*Dn)/r,1.15),[a,l]=[i/2-(t+
n)/2*o,s/2-r/2*o];this.zooming.transform(Y(this.svg.current),Ft.translate(a,l).scale(o))}show(t){let n=this.props.scene.byUnit.get(t);if(!n)return;let[r,i]=this.
size(),{k:s}=this.transform,[o,a]=this.transform.apply([n.mid,n.y]);if(o>60&&o<r-60&&a>30&&a+Math.min(n.h*s,i/2)<i-20&&s>=.45)return;let u=Math.max(s,.8),c=n.y+
Math.min(n.h,i/u)/2;this.zooming.transform(Y(this.svg.current),Ft.translate(r/2-n.mid*u,i/2-c*u).scale(u))}lookAround(){let[t,n]=this.size(),{k:r}=this.transform,
[i,s]=this.transform.invert([0,0]),o=this.state.window,[a,l]=[t/r,n/r];o&&o.grade===ti(r)&&i>=o.x&&s>=o.y&&i+a<=o.x+o.w&&s+l<=o.y+o.h||this.setState({window:{x:i-
a/2,y:s-l/2,w:2*a,h:2*l,grade:ti(r)}})}static within(t,n){let{x:r,y:i,w:s,h:o}=n,a=(c,h,p,d)=>c<r+s&&h<i+o&&c+p>r&&h+d>i,l=t.boxes.filter(c=>a(c.x-120,c.y,c.w+240,
c.h)),u=new Map;for(let c of t.lines){let[h,p,d,m]=c.box;if(!a(h-20,p,d+40,m))continue;let y=u.get(c.within);y?y.push(c):u.set(c.within,[c])}return{boxes:l,lines:u}}placesAt(t){
let{model:n,scene:r}=this.props,i=ln(t),s=this.places.get(r)??new Map;return this.places.set(r,s),s.has(i)||s.set(i,new Je(n,r,i,pr)),s.get(i)}labelsAt(t,n){return t.
near?this.placesAt(t).labels.filter(({line:r})=>Se(r,n)):[]}drawnIn(t){let{model:n,opened:r,scene:i,marks:s}=this.props,o=dr(xo(t.grade)),a=sr(i,o.least),{x:l,y:u,
w:c,h}=t,p=this.labelsAt(o,a).filter(d=>d.x>l-160&&d.x<l+c&&d.y>u&&d.y<u+h+20);return f(Qi,{model:n,opened:r,marks:s,detail:o,shown:a,labels:p,...e.within(i,t)})}visible(){
let[t,n]=this.size(),{k:r}=this.transform,[i,s]=this.transform.invert([0,0]),o={x:i,y:s,w:t/r,h:n/r,grade:ti(r)};return{...o,node:this.drawnIn(o)}}base(t){let{model:n,
scene:r,marks:i}=this.props,s=[n,r,i.matches,t];if(this.drawn?.key.every((a,l)=>a===s[l]))return this.drawn.node;let o=this.drawnIn(t);return this.drawn={key:s,
node:o},o}overlay(t,n){let{model:r,opened:i,scene:s,marks:o}=this.props,a=dr(xo(n.grade)),l=sr(s,a.least),u=ln(a),c=new Map;for(let[d,m]of t.units){let y=s.byUnit.
get(d);for(;y&&!l.units.has(y.unit);)y=s.byUnit.get(y.around);y&&c.get(y)!=="self"&&c.set(y,m)}let h=a.near?[...t.lines].filter(d=>d.side==="bridge"&&Se(d,l)):[],
p=h.length?this.placesAt(a).of(h):[];return f("g",{class:"overlay",children:[[...c].map(([d,m])=>d.kind==="open"?f("rect",{class:"ring",x:d.x,y:d.y,width:d.w,height:d.
h,rx:8},d.unit):f(gr,{model:r,opened:i,box:d,detail:a,marks:o,role:`is-${m}`},d.unit)),p.map(d=>f(mr,{label:d,size:u,bright:!0},d.line.key))]})}at(t){let n=t.target,
r=s=>{let o=n.closest(`[data-${s}]`)?.getAttribute(`data-${s}`);return o==null?null:Number(o)},i=r("loop");return{unit:r("unit"),fold:r("fold"),turn:i===null?null:
[i,r("turn")]}}clicked=t=>{let{unit:n,fold:r,turn:i}=this.at(t),{scene:s}=this.props;if(t.detail>1)return;if(this.lastFold=null,i)return this.props.onTurn(...i);
let o=n!==null&&s.byUnit.get(n)?.kind==="folded"?-n-1:r;if(o===null)return this.props.onClick(n);this.lastFold={frame:o,when:t.timeStamp},this.props.onFold(o)};doubled=t=>{
this.lastFold&&t.timeStamp-this.lastFold.when<700&&this.props.onOpenAll(this.lastFold.frame)};hold(t){this.lastFold?.frame!==t&&(this.lastFold={frame:t,when:-1/0})}render({
scene:t,lit:n,pinned:r,onHover:i}){let s=this.state.window;return f("svg",{ref:this.svg,class:`picture${r?" pinned":""}`,tabindex:0,role:"application","aria-lab\
el":"forward and backward","data-boxes":t.boxes.length,onClick:this.clicked,onDblClick:this.doubled,onMouseOver:o=>i(this.at(o).unit),onMouseLeave:()=>i(null),children:[
f(un,{}),f("g",{ref:this.world,children:[f("g",{class:"base",children:s&&this.base(s)}),s&&n&&this.overlay(n,s)]})]})}};function $o(e,t){let n=new Map,r=e.data.nodes;for(let i=0;i<e.count;i++){let s=t(i),o=e.isForward(i)?0:1,a=n.get(s)??{name:s,steps:[0,0],flops:[0,0],bytes:[0,0]};
n.set(s,a),a.steps[o]++,a.flops[o]+=r.flops[i],a.bytes[o]+=r.read[i]+r.written[i]}return[...n.values()]}var Mo=new WeakMap;function Eo({model:e,search:t}){let n=Mo.
get(e)??{kinds:$o(e,i=>e.kinds[i]),operators:$o(e,i=>e.shorts[i])};Mo.set(e,n);let r=Tf(n.kinds);return f("div",{class:"panel",children:[f("h2",{children:"Opera\
tors"}),f("p",{class:"soft",children:`Forward ${ie(r.flops[0])}, ${A(r.bytes[0])} read and written. Backward ${ie(r.flops[1])}, ${A(r.bytes[1])}.`}),f(So,{title:"\
kind",prefix:"kind:",rows:n.kinds,search:t}),f(So,{title:"operator",prefix:"op:",rows:n.operators,search:t})]})}function Tf(e){let t=n=>[0,1].map(r=>e.reduce((i,s)=>i+
s[n][r],0));return{name:"",steps:t("steps"),flops:t("flops"),bytes:t("bytes")}}function So({title:e,prefix:t,rows:n,search:r}){let i=a=>Math.max(1,...n.flatMap(
l=>l[a])),s=(a,l)=>{let u=i(a);return c=>f("span",{class:"pair",children:[f("span",{children:[f(an,{share:c[a][0]/u,side:"forward"}),l(c[a][0])]}),f("span",{children:[
f(an,{share:c[a][1]/u,side:"backward"}),l(c[a][1])]})]})},o=[{name:e,value:a=>a.name,cell:a=>f("button",{class:"link",onClick:()=>r(`${t}${a.name}`),children:f(
"bdi",{children:a.name})})},{name:"steps",value:a=>a.steps[0]+a.steps[1],cell:a=>f("span",{class:"pair",children:[f("span",{children:E(a.steps[0])}),f("span",{children:E(
a.steps[1])})]})},{name:"FLOPs",value:a=>a.flops[0]+a.flops[1],cell:s("flops",ve)},{name:"bytes",value:a=>a.bytes[0]+a.bytes[1],cell:s("bytes",A)}];return f(ft,
{columns:o,rows:n,sort:[2,-1],empty:"There is no step."})}function Lf(e){let t=new Map,{nodes:n,sources:r,saved:i}=e.data;for(let[s,,,o]of i){let a=s<e.count?r[n.
source[s]]:void 0,l=s>=e.count?"inputs and parameters":e.lineOf(s)||"no source line",u=t.get(l)??{line:l,code:a?e.text(a[3]):"",bytes:0,values:[]};t.set(l,u),u.
bytes+=o,u.values.push(s)}return[...t.values()]}function Oo({model:e,go:t,search:n}){let r=Lf(e),i=r.reduce((a,l)=>a+l.bytes,0),s=Math.max(1,...r.map(a=>a.bytes)),
o=[{name:"source line",value:a=>a.line,cell:a=>f("span",{children:[a.line.includes(":")?f("button",{class:"link",title:a.line,onClick:()=>n(`line:${a.line}`),children:f(
"bdi",{children:a.line.split("/").at(-1)})}):a.line,f("code",{class:"soft",children:f("bdi",{children:a.code})})]})},{name:"saved",value:a=>a.bytes,cell:a=>f("s\
pan",{children:[f(an,{share:a.bytes/s,side:"saved"})," ",A(a.bytes)]})},{name:"values",value:a=>a.values.length,cell:a=>f("span",{children:[E(a.values.length),"\
 ",f(yt,{model:e,value:a.values[0],go:t})]})}];return f("div",{class:"panel",children:[f("h2",{children:"Saved, by source line"}),f("p",{class:"soft",children:`${A(
i)} that the caller does not hold anyway. A value that shares memory with another counts once.`}),f(ft,{columns:o,rows:r,sort:[1,-1],empty:"Nothing is saved."})]})}
function No({model:e,go:t}){let n=new Map;for(let h of e.data.ports)!h.into&&h.role==="gradient"&&n.set(h.value,e.text(h.name));let{value:r,rows:i}=e.data.stats,
s=r.map((h,p)=>({value:h,gradient:n.get(h)??"",row:i[p]})),o=(h,p)=>({name:h,value:d=>d.row[p]??NaN,cell:d=>f("span",{class:(p===6||p===7)&&d.row[p]?"alarm":"",
children:Ut(d.row[p])})}),a=[{name:"value",value:h=>h.gradient||e.nameOf(h.value),cell:h=>f("span",{children:[h.gradient&&f("span",{class:"tag",children:["gradi\
ent of ",f("bdi",{children:h.gradient})]}),f(yt,{model:e,value:h.value,go:t})]})},o("NaN",6),o("Inf",7),o("norm",5),o("mean",3),o("std",4),o("min",1),o("max",2),
o("zeros",8),o("count",0)],l=s.filter(h=>h.row[6]||h.row[7]).length,u=s.filter(h=>h.gradient),c=s.filter(h=>!h.gradient);return f("div",{class:"panel",children:[
f("h2",{children:"Values"}),f("p",{class:l?"alarm":"soft",children:l?`${E(l)} of ${E(s.length)} measured values have NaN or Inf.`:`No NaN and no Inf in ${E(s.length)}\
 measured values.`}),u.length>0&&f("h3",{children:"Gradients"}),u.length>0&&f(ft,{columns:a,rows:u,sort:[l?1:3,-1],empty:""}),f("h3",{children:"Other values"}),
f(ft,{columns:a,rows:c,sort:[l?1:3,-1],empty:"No other value was measured."})]})}function Co({model:e,go:t}){let n=new Map,{own:[,r]}=e.savedSum();for(let s of e.
data.ports)_e(n,`${s.side?"Backward":"Forward"} ${s.into?"takes":"gives"}: ${s.role}`).push(s);let i=[{name:"name",value:s=>e.text(s.name),cell:s=>f("bdi",{children:e.
text(s.name)})},{name:"type",value:s=>e.text(s.spec),cell:s=>f("code",{children:e.text(s.spec)})},{name:"bytes",value:s=>s.bytes,cell:s=>A(s.bytes)},{name:"step",
value:s=>s.into?e.usersOf(s.value)[0]??-1:s.value,cell:s=>{let o=s.into?e.usersOf(s.value)[0]:s.value;return o===void 0?f("span",{class:"soft",children:"unused"}):
f(yt,{model:e,value:o,go:t})}}];return f("div",{class:"panel",children:[f("h2",{children:"Inputs and outputs"}),[...n].map(([s,o])=>f("details",{open:o.length<=
12,children:[f("summary",{children:[s," ",f("span",{class:"soft",children:[E(o.length),", ",A(o.reduce((a,l)=>a+l.bytes,0)),o[0].role==="saved"&&`, of which ${A(
r)} in memory that nothing else has`]})]}),f(ft,{columns:i,rows:o,sort:[2,-1],empty:""})]},s))]})}var Ao=430,If=[["changes","Changes","h"],["details","Details","d"],["code","Code","c"],["memory","Memory","m"],["lines","Lines","l"],["operators","Operators","o"],
["values","Values","v"],["ports","In/out","i"]],zn=class extends W{picture;finder;searchers=new Map;keep=new Map;timer=0;marking=0;changes=$i(this.props.models);lastChange=-1;state={
...this.begin(location.hash),hovered:null,query:"",found:null,marked:null,at:-1,moment:null,tab:this.props.page.changes?"changes":"details",help:!1,told:"",wide:Ao};begin(t){
let{models:n}=this.props,r=this.firstChange(t),{unit:i,opened:s,...o}=Fi(t,n),a=r?.pair??o.pair,l=n[a],u=s??this.first(l),c=i??r?.node??null;return{pair:a,selected:i,
opened:c===null||s?u:on(l,u,c)}}firstChange(t){return t||innerWidth<=760?void 0:this.changes[0]}first(t){let n=innerWidth>760?innerWidth-(this.state?.wide??Ao)-
5:innerWidth;return Li(t,n-2*Me(n))}get model(){return this.props.models[this.state.pair]}get scene(){return this.kept("scene",[this.model,this.state.opened],()=>sn(
this.model,this.state.opened))}get searcher(){let{model:t}=this;return this.searchers.has(t)||this.searchers.set(t,new fn(t)),this.searchers.get(t)}kept(t,n,r){
let i=this.keep.get(t);if(i&&i.key.length===n.length&&i.key.every((o,a)=>o===n[a]))return i.value;let s=r();return this.keep.set(t,{key:n,value:s}),s}componentDidMount(){
document.addEventListener("keydown",this.pressed),addEventListener("hashchange",this.followed),setTimeout(()=>this.searcher,300);let t=this.state.selected??this.
firstChange(location.hash)?.node??null;t!==null&&this.picture.show(this.visible(t))}componentWillUnmount(){document.removeEventListener("keydown",this.pressed),
removeEventListener("hashchange",this.followed)}componentDidUpdate(t,n){let{pair:r,selected:i,opened:s}=this.state;n.pair===r&&n.selected===i&&n.opened===s||(clearTimeout(
this.timer),location.protocol!=="about:"&&(this.timer=window.setTimeout(()=>history.replaceState(null,"",or(r,i,s)),250)))}followed=t=>{clearTimeout(this.timer);
let n=this.begin(new URL(t.newURL).hash);this.setState(n,()=>n.selected!==null&&this.picture.show(this.visible(n.selected)))};visible(t){return St(this.model,this.
scene,t)}go=t=>{let n=this.scene.byUnit.has(t)?this.state.opened:on(this.model,this.state.opened,t);this.setState({opened:n,selected:t,hovered:null,...this.momentOf(
t)},()=>this.picture.show(this.visible(t)))};momentOf(t){return t!==null&&t>=0&&this.state.tab!=="memory"?{moment:null}:{}}select=t=>{let{tab:n}=this.state,r=t===
F(0)?null:t;this.setState({selected:r,told:"",tab:n==="changes"&&r!==null?"details":n})};fold=t=>{this.picture.hold(t);let n=Di(this.model,this.state.opened,t),
r=this.state.selected,i=r!==null&&!qt(this.model,n,t)&&this.model.above(r).includes(t);this.setState({opened:n,selected:t===0?this.state.selected:i||r===null||r<
0?F(t):r})};openAll=t=>{this.picture.hold(t),this.setState({opened:Bi(this.model,this.state.opened,t),selected:t===0?null:F(t)})};turn=(t,n)=>{this.picture.hold(
t);let{model:r}=this,{selected:i}=this.state,s=zi(r,this.state.opened,t,n);this.setState({opened:s,selected:i!==null&&r.above(i).includes(t)?this.sameIn(t,s,i):
i})};sameIn(t,n,r){let{model:i}=this,s=[r,...i.above(r).map(F)],o=s.indexOf(F(t)),a=i.frame(t).units[Bt(i,n,t)];for(let l of s.slice(0,o-1).reverse()){let u=l<0?
i.framePlace[-l-1]:i.place[l],c=a<0?i.frame(-a-1).units[u]:void 0;if(c===void 0)return F(t);a=c}return a}depth=t=>this.setState({opened:Ii(this.model,this.state.
opened,t)},()=>{this.state.selected!==null?this.picture.show(this.visible(this.state.selected)):this.picture.fit()});search=t=>{let n=this.searcher.find(t);this.
setState({query:t,found:n,at:-1}),clearTimeout(this.marking),this.marking=window.setTimeout(()=>this.setState({marked:n}),90)};ask=t=>{this.search(t),this.finder.
focus()};goMatch=t=>{let n=this.state.found.units[t];this.setState({at:t}),this.go(n)};nextMatch(t){let{found:n,at:r}=this.state,i=n?.units.length??0;i&&this.goMatch(
r<0?t>0?0:i-1:(r+t+i)%i)}moment=t=>this.setState({moment:t,tab:"memory"});exported=()=>{let t=this.props.page.title.replace(/[^\w.-]+/g,"_").slice(0,60)||"graph";
ts(`${t}.svg`,Ji(this.picture,this.props.page.title))};link=()=>{let{pair:t,selected:n,opened:r}=this.state,i=location.href.replace(/#.*$/,"")+or(t,n,r);es(i).then(
s=>this.setState({told:s}))};choose=t=>{let n=this.first(this.props.models[t]);this.setState({pair:t,opened:n,selected:null,hovered:null,query:"",found:null,marked:null,
at:-1,moment:null})};jump=(t,n)=>{if(t===this.state.pair)return this.go(n);let r=this.props.models[t];this.choose(t),this.setState({opened:on(r,this.first(r),n),
selected:n},()=>this.picture.show(this.visible(n)))};nextChange(t){let{changes:n}=this,{pair:r,selected:i}=this.state,s=Zn(n,this.props.models,r,i);if(!n.length)
return;let o=s<0?this.lastChange:s;this.lastChange=o<0?t>0?0:n.length-1:(o+t+n.length)%n.length,this.jump(n[this.lastChange].pair,n[this.lastChange].node)}turnAround(t){
let{selected:n,opened:r}=this.state,s=(n===null?[]:[...n<0?[-n-1]:[],...this.model.above(n)]).find(o=>this.model.frame(o).kind==="loop")??this.onlyLoop();s!==void 0&&
this.turn(s,Bt(this.model,r,s)+t)}onlyLoop(){let t=this.scene.boxes.filter(n=>n.unit<0&&this.model.frame(-n.unit-1).kind==="loop");return t.length?-t[0].unit-1:
void 0}pressed=t=>{let n=t.target;if(t.ctrlKey||t.metaKey||t.altKey||/^(INPUT|SELECT|TEXTAREA)$/.test(n.tagName)||t.key==="Enter"&&n.tagName==="BUTTON"||t.key.startsWith(
"Arrow")&&n.closest(".code, .side"))return;let r=this.actions(t)[t.key];r&&(t.preventDefault(),r())};actions(t){let{model:n,scene:r}=this,{selected:i}=this.state,
s=this.picture,o=u=>u!==null&&this.go(u),a=u=>this.state.found?this.nextMatch(u):this.nextChange(u);return{"/":()=>this.finder.focus(),"?":()=>this.setState({help:!this.
state.help}),Escape:()=>this.state.help?this.setState({help:!1}):this.select(null),Enter:()=>{if(i===null)return;let u=i<0?-i-1:r.byUnit.has(i)?n.above(i).find(
c=>r.byUnit.has(F(c))):-this.visible(i)-1;t.shiftKey?this.openAll(u):this.fold(u)},ArrowDown:()=>o(vr(n,r,i,1)),ArrowUp:()=>o(vr(n,r,i,-1)),ArrowLeft:()=>o(wr(n,
i,!1)),ArrowRight:()=>o(wr(n,i,!0)),"[":()=>this.turnAround(-1),"]":()=>this.turnAround(1),n:()=>a(1),p:()=>a(-1),"+":()=>s.scaleBy(1.3),"=":()=>s.scaleBy(1.3),
"-":()=>s.scaleBy(1/1.3),f:()=>s.fit(),a:()=>s.fitAll(),...Object.fromEntries(this.tabs().map(([u,,c])=>[c,()=>this.setState({tab:u})])),...Object.fromEntries(Array.
from({length:10},(u,c)=>[String(c),()=>this.depth(Math.max(1,c))]))}}tabs(){let{stats:t}=this.model.data,n=[!this.props.page.changes&&"changes",!t&&"values",!this.
model.timed&&"memory",!this.model.timed&&"lines"];return If.filter(([r])=>!n.includes(r))}lit(){let{model:t,scene:n}=this,{selected:r,hovered:i}=this.state,s=i??
r;if(s===null||s===F(0)||i!==null&&n.byUnit.get(i)?.kind==="open"&&r===null)return null;let o=i!==null&&n.byUnit.get(i)?.kind==="open"?r:s;return this.kept("lit",
[n,o],()=>Ri(t,n,o))}panel(){let{model:t,go:n,jump:r}=this,{pair:i,tab:s,opened:o,selected:a,moment:l}=this.state,{page:u,models:c}=this.props,h=s==="code"?this.
lit():null;return this.kept("panel",[t,s,o,a,l,h],()=>s==="changes"&&u.changes?f(Ye,{page:u,models:c,jump:r,marked:this.changes,at:Zn(this.changes,c,i,a)}):s===
"code"?f(Ze,{model:t,selected:a,go:n,lit:h?.steps??null}):s==="memory"&&t.timed?f(cs,{model:t,moment:l,go:n,onMoment:this.moment}):s==="lines"&&t.timed?f(Oo,{model:t,
go:n,search:this.ask}):s==="operators"?f(Eo,{model:t,search:this.ask}):s==="values"&&t.data.stats?f(No,{model:t,go:n}):s==="ports"?f(Co,{model:t,go:n}):f(Vi,{page:u,
model:t,opened:o,selected:a,go:n,jump:r,onFold:this.fold,onOpenAll:this.openAll,onTurn:this.turn}))}bar(){let{page:t,models:n}=this.props,{pair:r,query:i,found:s,
at:o,told:a}=this.state,{model:l}=this,u=Ui(l,this.state.opened);return f("header",{children:[f("h1",{title:t.title,children:f("bdi",{children:t.title})}),n.length>
1&&f("select",{"aria-label":"pairs of graphs",value:r,onChange:c=>this.choose(Number(c.currentTarget.value)),children:n.map((c,h)=>f("option",{value:h,children:c.
data.name||`pair ${h+1}`},h))}),f(dn,{mounted:c=>this.finder=c,model:l,query:i,found:s,at:o,onQuery:this.search,onGo:this.goMatch,onLeave:()=>this.focusPicture()}),
f("span",{class:"group",role:"group","aria-label":"depth",children:[f("button",{title:"close one level",disabled:u<=1,onClick:()=>this.depth(Math.max(1,u-1)),children:"\
−"}),f("span",{class:"soft",title:"frames are open to this depth",children:["depth ",u]}),f("button",{title:"open one level",disabled:u>l.deepest,onClick:()=>this.
depth(u+1),children:"+"})]}),f("span",{class:"group",children:[f("button",{title:"the whole picture (a)",onClick:()=>this.picture.fitAll(),children:"fit"}),f("b\
utton",{title:"copy a link to the selection",onClick:this.link,children:"link"}),f("button",{title:"save the visible part as an SVG file",onClick:this.exported,
children:"SVG"}),f("button",{title:"keys (?)",onClick:()=>this.setState({help:!0}),children:"?"})]}),a&&(a.includes("#")?f("input",{class:"told",readOnly:!0,value:a,
"aria-label":"link",onFocus:c=>c.currentTarget.select()}):f("output",{class:"told",children:a}))]})}focusPicture(){document.querySelector("svg.picture").focus()}caption(){
let{model:t}=this,{hovered:n,selected:r}=this.state,i=n??r;if(i===null)return"";if(i<0)return[t.text(t.frame(-i-1).name),t.text(t.frame(-i-1).label)].filter(Boolean).
join("  ");let s=t.data.sources[t.data.nodes.source[i]]?.[3];return[`${t.nameOf(i)}: ${t.specOf(i)} = ${t.call(i)}`,t.lineOf(i),s===void 0?"":t.text(s)].filter(
Boolean).join("   ")}dragged=t=>{t.buttons===1&&this.setState({wide:Math.max(240,Math.min(innerWidth-200,innerWidth-t.clientX))})};render(){let{model:t,scene:n}=this,
{selected:r,marked:i,tab:s,help:o,moment:a,wide:l,opened:u}=this.state,c=this.kept("marks",[i],()=>({matches:i?.within??null,steps:i?.steps??null}));return f("d\
iv",{class:"app",style:{"--wide":`${l}px`},children:[this.bar(),f("main",{children:[f("div",{class:"stage",children:[f(Bn,{mounted:h=>this.picture=h,model:t,scene:n,
opened:u,marks:c,lit:this.lit(),pinned:r!==null&&r>=0,onClick:this.select,onFold:this.fold,onOpenAll:this.openAll,onTurn:this.turn,onHover:this.hover}),f("div",
{class:"legend","aria-hidden":"true",children:[f("span",{class:"forward",children:"forward ↓"}),t.neighbors?f("span",{class:"neighbor",children:"neighbor of t\
he region"}):f("span",{class:"saved",children:"saved"}),f("span",{class:"backward",children:"backward ↑"})]}),f("div",{class:"caption",children:f("bdi",{children:this.
caption()})})]}),f("div",{class:"grip",onPointerDown:h=>h.currentTarget.setPointerCapture(h.pointerId),onPointerMove:this.dragged}),f("section",{class:"side",children:[
f("nav",{role:"tablist",children:this.tabs().map(([h,p,d])=>f("button",{role:"tab","aria-selected":s===h,title:`key ${d}`,onClick:()=>this.setState({tab:h}),children:p},
h))}),this.panel()]})]}),t.timed&&f(pn,{model:t,moment:a,selected:r,onMoment:this.moment}),o&&f(Uf,{changes:this.props.page.changes!==void 0,onClose:()=>this.setState(
{help:!1})})]})}hover=t=>{t!==this.state.hovered&&this.setState({hovered:t})}};function Uf({changes:e,onClose:t}){return f("div",{class:"cover",onClick:t,children:f(
"div",{class:"card",role:"dialog","aria-label":"keys",children:[f("h2",{children:"Keys"}),f("dl",{children:os(e).map(([n,r])=>[f("dt",{children:f("kbd",{children:n})},
n),f("dd",{children:r},`${n} `)])}),f("button",{onClick:t,children:"close"})]})})}function Df(e){let t=ki(document.getElementById("data")?.textContent??"");document.title=t.title||document.title,re(f(zn,{page:t,models:t.pairs.map(n=>new Xe(n,
t.pairs.length>1?n.name:t.title))}),e)}var Po=document.getElementById("app");try{Df(Po)}catch(e){let t=e instanceof Error?e.message:String(e);re(f("div",{class:"\
wrong",role:"alert",children:[f("h1",{children:"This page cannot be drawn"}),f("p",{children:e instanceof se?"Its data are not whole, or are not what this page \
reads. The first thing that is wrong:":"Something in the page itself failed:"}),f("pre",{children:t}),f("p",{children:["Write the page again: ",f("code",{children:"\
backprint view SAMPLE -o page.html"}),"."]})]}),Po)}})();
